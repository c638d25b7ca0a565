"""Rows, names and graphs: exactly as wide as asked, and what is cut stays true."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktop.model.event import Alert, Severity
from sparktop.model.series import HistoryTable, Series
from sparktop.panels.parts.figures import alerts_sign
from sparktop.panels.parts.graph import hold_last
from sparktop.panels.parts.text import (
    fit_row,
    fitted_names,
    frame_rows,
    row_text,
    row_width,
    shorten_piece,
)
from tests.panels.drawn import fitted

RUNS = st.lists(st.tuples(st.text(max_size=12), st.sampled_from(["text", "title", "bad"])), max_size=6)


@given(RUNS, st.integers(0, 40))
def test_a_row_is_as_wide_as_asked(runs: list[tuple[str, str]], width: int) -> None:
    """Cutting and padding give exactly the width, wide and combining characters included."""
    assert row_width(fit_row(runs, width)) == width


@given(RUNS, RUNS, RUNS, st.integers(8, 60), st.integers(2, 9))
def test_a_frame_is_never_broken(
    title: list[tuple[str, str]],
    status: list[tuple[str, str]],
    body: list[tuple[str, str]],
    width: int,
    height: int,
) -> None:
    """All rows of a frame have its width, and its corners and sides stand where they belong."""
    rows = frame_rows([body, body], width, height, title=title, status=status, footnote=body, note=title)
    top, *sides, bottom = fitted(rows, width, height)
    assert (top[0], top[-1]) == ("╭", "╮")
    assert (bottom[0], bottom[-1]) == ("╰", "╯")
    assert all((text[0], text[-1]) == ("│", "│") for text in sides)


@pytest.mark.parametrize("room", [60, 45, 30, 20])
def test_the_key_behind_a_cut_sentence_stays(room: int) -> None:
    """Clauses and words go; the key that shows all of it is never cut."""
    said = (" ▲ orphaned engine core (process 3377) holds 9.0 GiB: its server is gone ", "warn")
    row = shorten_piece([said, ("enter ", "key")], room)
    assert row_width(row) <= room
    assert row[-1] == ("enter ", "key")
    assert "orphaned" in row_text(row)


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (("10.0.0.17:8000", "10.0.0.18:8000"), ("…17:8000", "…18:8000")),
        (("10.0.0.17:8000", "10.0.0.18:8000", "spark-1"), ("…17:8000", "…18:8000", "spark-1")),
        (("10.0.0.17:8000", "10.0.0.117:8000"), ("…17…", "…117…")),
        (("127.0.0.1:35081", "127.0.0.1:40911"), ("…1:35081", "…1:40911")),
        (("vllm-llama-a", "vllm-llama-b"), ("…llama-a", "…llama-b")),
        (("a-far-too-long-name", "short"), ("a-far…me", "short")),
        (("a-far-too-long-name", "another-long-name"), ("a-far-t…", "another…")),
        (("127.0.0.1:35081", "another-long-name"), ("…1:35081", "another…")),
        (("127.0.0.1:18106", "short"), ("…1:18106", "short")),
    ],
)
def test_names_that_do_not_fit_are_cut_where_they_are_alike(
    names: tuple[str, ...], shown: tuple[str, ...]
) -> None:
    """What all begin with goes first; a number is never cut, and a name alone loses its middle."""
    assert tuple(fitted_names(names, 8)[name].rstrip() for name in names) == shown


@pytest.mark.parametrize(
    ("line", "room", "shown"),
    [
        ("MTU of RDMA ports differs: 9000 on spark-a vs. 1500 on spark-b", 59, "9000 on spark-a…"),
        ("loads differ, two servers take turns, 32 requests at one and 0 at the other", 60, "take turns"),
        ("two servers take turns: 32 requests at one, 0 at the other", 45, "32 requests…"),
        ("throughput lost: not known, because step times are not known", 50, "because step times…"),
        ("queueing since 12:03, as all slots are taken by long requests", 40, "since 12:03"),
    ],
)
def test_a_cut_sentence_ends_at_a_clause_or_says_so(line: str, room: int, shown: str) -> None:
    """A list behind a colon is not cut at its commas, and no preposition is the last word."""
    assert row_text(shorten_piece([(line, "text")], room)).rstrip().endswith(shown)


def series(points: Sequence[tuple[float, float | None]]) -> Series:
    table = HistoryTable(("value",), 5000)
    for time, value in points:
        table.append(time, {"value": value})
    return table.series()["value"]


def test_a_value_holds_until_its_next_sample_is_due() -> None:
    """Read every two seconds, a node has a value in each second, and none once a sample is overdue."""
    for newest, held in ((6.0, [6.0, 6.0, 6.0, None]), (None, [None] * 4)):
        means = [4.0, 4.0, newest, None, None, None, None]
        hold_last(means, series([(0.5, 4.0), (2.5, newest)]), 6, 1.0)
        assert means == [4.0, 4.0, newest, *held]


def test_each_severity_of_alerts_is_counted_apart() -> None:
    """A number beside the sign of critical alerts counts no warning, and a remark counts as neither."""
    alerts = {one: Alert("id", one, "n", "", datetime(2026, 1, 1, tzinfo=UTC)) for one in Severity}
    many = [Severity.CRITICAL] * 2 + [Severity.INFO] * 2 + [Severity.WARNING]
    for kinds, sign in ((many, "✖2 ▲1 "), (many[2:], "▲ "), (many[2:3], "· ")):
        assert alerts_sign([alerts[kind] for kind in kinds]) == sign


@pytest.mark.parametrize("sign", ["·", "▲", "✖"])
def test_a_cut_finding_keeps_its_first_words(sign: str) -> None:
    """The sign of a remark looks like what stands between two parts of a sentence."""
    line = f" {sign} positions 4–7 add 0.12 tokens a step and cost 11 ms: k = 3 would give about 14 % more "
    row = shorten_piece([(line, "text"), ("enter ", "key")], 62)
    assert "".join(text for text, _ in row).startswith(f" {sign} positions 4–7 add 0.12 tokens a step")
