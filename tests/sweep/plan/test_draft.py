"""A sweep as it is typed: presets fill fields, fields make a plan, and what is wrong is said at its field.

What was last chosen comes back, whatever has become of the file.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sparktop.model.targets import GuardLimits, SweepSpec
from sparktop.sweep.plan.draft import (
    Draft,
    DraftKind,
    check_draft,
    draft_of,
    is_changed,
    recall,
    remember,
    with_kind,
    without_missing,
)
from sparktop.sweep.plan.plan import Plan, SweepTarget
from sparktop.sweep.plan.presets import BUILT_IN, make_plan
from sparktop.sweep.terms.definitions import MOST_CONCURRENCY
from tests.known import known

TARGETS = (SweepTarget("a", "http://127.0.0.1:1", api_key="k"), SweepTarget("b", "http://127.0.0.1:2"))
GUARD = GuardLimits(min_headroom_gib=8.0, max_gpu_c=85.5)
QUICK = draft_of(BUILT_IN[0], ("a",), GUARD)


def plan_of(draft: Draft) -> Plan:
    plan, wrong = check_draft(draft, TARGETS, seed=7)
    assert plan is not None, wrong
    return plan


def problems(**changes: object) -> dict[str, str]:
    """Return the problems of the quick preset after some fields are changed."""
    plan, wrong = check_draft(replace(QUICK, **changes), TARGETS)  # type: ignore[arg-type]  # fields by name
    assert (plan is None) == bool(wrong)
    return dict(wrong)


OTHERS = (
    SweepSpec("r", rate="1,2", arrivals="bursty", duration_s=20.0, runs=2, prompt_lengths=(64,)),
    SweepSpec("k", rate="auto", prompt_lengths=(64,)),
    SweepSpec("a", agents=(1, 3), workload="rag", duration_s=90.0),
    SweepSpec("d", depths=(0, 4096), concurrency=(1, 2), whole=True, slo="ttft_p90_ms=900", warmup=False),
)
"""Presets of the other kinds of load, as a configuration has them."""


@pytest.mark.parametrize("preset", [*BUILT_IN[:3], *OTHERS], ids=lambda one: one.name)
def test_every_kind_of_load_makes_the_plan_of_the_command_line(preset: SweepSpec) -> None:
    """Fields filled from it and left alone are the same plan, and unchanged; its kind is in the field."""
    asked = make_plan(preset | SweepSpec(seed=7), TARGETS[:1], guard=GUARD)
    draft = draft_of(preset, ("a",), GUARD)
    made = plan_of(draft)
    assert replace(made, prompt_lengths=made.lengths) == replace(asked, prompt_lengths=asked.lengths)
    assert not is_changed(draft, preset, GUARD)


@pytest.mark.parametrize(
    ("kind", "field", "text", "words"),
    [
        ("concurrency", "concurrency", "0", f"1 to {MOST_CONCURRENCY:,}"),
        ("concurrency", "concurrency", "8-1", "the limit after '..' must be 8 or more"),
        ("concurrency", "runs", "", "or give seconds or requests"),
        ("concurrency", "duration", "nan", "not 'nan'"),
        ("concurrency", "requests", "2.5", "whole number"),
        ("concurrency", "headroom", "-1", "GiB"),
        ("concurrency", "slo", "speed=3", "no figure 'speed'"),
        ("concurrency", "targets", (), "mark at least one"),
        ("concurrency", "targets", ("gone",), "gone is not watched"),
        ("rate", "rate", "1e9", "is not a rate"),
        ("rate", "rate", "", "or auto"),
        ("agents", "agents", "x", "not 'x'"),
        ("agents", "workload", "codr", "did you mean 'coder'?"),
        ("agents", "workload", "/none/x.toml", "cannot be read"),
    ],
)
def test_each_problem_is_a_line_at_its_field(kind: str, field: str, text: object, words: str) -> None:
    """It says what is wrong and what to write instead, without options of the command line."""
    draft = replace(with_kind(QUICK, DraftKind[kind.upper()]), **{field: text})  # type: ignore[arg-type]  # by name
    found = check_draft(draft, TARGETS)[1]
    assert list(found) == [field]
    assert words in found[field]
    assert "--" not in found[field]
    assert "\n" not in found[field]


@given(st.text(max_size=60), st.sampled_from(["concurrency", "pp", "tg", "runs", "slo", "gpu", "model"]))
def test_whatever_is_typed_is_a_plan_or_a_printable_line(text: str, field: str) -> None:
    """No text raises, and no problem holds what could move a cursor."""
    for line in problems(**{field: text}).values():
        assert line.isprintable()


def test_what_a_preset_adds_to_each_request_stays(tmp_path: Path) -> None:
    """Prompts, body, headers and time limit of a preset have no fields in the editor, and are sent."""
    file = tmp_path / "day.txt"
    file.write_text("one\ntwo\n", encoding="utf-8")
    preset = SweepSpec(
        "mine",
        concurrency=(1, 2),
        prompts=str(file),
        extra_body={"temperature": 0},
        headers={"X-Tenant": "a"},
        timeout_s=20.0,
    )
    targets = (SweepTarget("a", "http://127.0.0.1:1"),)
    draft = draft_of(preset, ("a",), GuardLimits())
    plan = known(check_draft(draft, targets, preset=preset)[0])
    assert (known(plan.prompts).count, plan.timeouts.first_token_s) == (2, 20.0)
    assert (dict(plan.extra_body), dict(plan.headers)) == ({"temperature": 0}, {"X-Tenant": "a"})


CHOSEN = replace(
    draft_of(BUILT_IN[1], ("proxy", "spark-a"), GuardLimits(8.0)),
    mode="steady",
    order="abba",
    api="completions",
    warmup=False,
    slo="ttft_p90_ms=2000",
    model="tiny",
)


def test_what_no_longer_exists_is_dropped() -> None:
    """A remembered preset or target that is gone is not among the fields, and nothing else is lost."""
    gone = replace(QUICK, preset="gone", targets=("gone", "a"), concurrency="5")
    assert without_missing(gone, {"quick"}, {"a", "b"}) == replace(QUICK, concurrency="5")


def test_a_choice_comes_back_whole(tmp_path: Path) -> None:
    """Each field of it, and no part of a file is left beside it."""
    path = tmp_path / "deep" / "sweep.json"
    assert remember(path, CHOSEN) is None
    assert recall(path) == CHOSEN
    assert [one.name for one in path.parent.iterdir()] == ["sweep.json"]


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", '"x"', "null", "[" * 100_000, '{"concurrency": 3}', "\x00", '{"mode": "wild"}']
)
def test_a_broken_file_is_passed_over_and_replaced(tmp_path: Path, text: str) -> None:
    """It is as if there were none, and the next choice stands in its place."""
    path = tmp_path / "sweep.json"
    path.write_text(text)
    assert recall(path) is None
    assert remember(path, CHOSEN) is None
    assert recall(path) == CHOSEN


def test_what_the_file_says_is_clean(tmp_path: Path) -> None:
    """Control characters and long texts end at the edge, in names too."""
    path = tmp_path / "sweep.json"
    path.write_text(
        json.dumps({"concurrency": "1\x1b[31m", "model": "m" * 9999, "targets": ["a\x07", "b", "b"]})
    )
    found = known(recall(path))
    assert (found.concurrency, len(found.model), found.targets) == ("1 [31m", 400, ("a", "b"))


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    """A file where the folder should be gives a message, not an exception."""
    (tmp_path / "sparktop").write_text("")
    assert remember(tmp_path / "sparktop" / "sweep.json", CHOSEN)
