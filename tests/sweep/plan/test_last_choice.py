"""What was last chosen comes back, whatever has become of the file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from sparktop.model.targets import GuardLimits
from sparktop.sweep.plan.draft import Draft, draft_of, recall, remember
from sparktop.sweep.plan.presets import BUILT_IN

CHOSEN = replace(
    draft_of(BUILT_IN[1], ("proxy", "spark-a"), GuardLimits(8.0)),
    mode="steady",
    order="abba",
    api="completions",
    warmup=False,
    slo="ttft_p90_ms=2000",
    model="tiny",
)


def test_a_choice_comes_back_whole(tmp_path: Path) -> None:
    """Each field of it, and no part of a file is left beside it."""
    path = tmp_path / "deep" / "sweep.json"
    assert remember(path, CHOSEN) is None
    assert recall(path) == CHOSEN
    assert [one.name for one in path.parent.iterdir()] == ["sweep.json"]


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", '"x"', "null", "[" * 100_000, '{"concurrency": 3}', "\x00", '{"pp": "1"}']
)
def test_a_broken_file_is_passed_over_and_replaced(tmp_path: Path, text: str) -> None:
    """It is as if there were none, and the next choice stands in its place."""
    path = tmp_path / "sweep.json"
    path.write_text(text)
    assert recall(path) is None
    assert remember(path, CHOSEN) is None
    assert recall(path) == CHOSEN


def test_values_of_other_kinds_are_left_out(tmp_path: Path) -> None:
    """What a field cannot hold leaves that field as it is in a new draft."""
    path = tmp_path / "sweep.json"
    odd = {"concurrency": "2,4", "tg": 64, "mode": "wild", "warmup": "no", "targets": "a", "other": "x"}
    path.write_text(json.dumps(odd))
    assert recall(path) == Draft(concurrency="2,4")


def test_what_the_file_says_is_clean(tmp_path: Path) -> None:
    """Control characters and long texts end at the edge, in names too."""
    path = tmp_path / "sweep.json"
    path.write_text(
        json.dumps({"concurrency": "1\x1b[31m", "model": "m" * 9999, "targets": ["a\x07", 3, "b", "b"]})
    )
    found = recall(path)
    assert found is not None
    assert found.concurrency == "1 [31m"
    assert len(found.model) == 400
    assert found.targets == ("a", "b")


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    """A file where the folder should be gives a message, not an exception."""
    (tmp_path / "sparktop").write_text("")
    assert remember(tmp_path / "sparktop" / "sweep.json", CHOSEN)
