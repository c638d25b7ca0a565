"""The strip of levels and the time axis of a running sweep: legible in narrow graphs, no label twice."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sparktop.model.sweep import LevelKey, LevelSpan, LiveSeries
from sparktop.panels.parts.figures import part_role
from sparktop.panels.parts.text import Row, row_text, short_names
from sparktop.panels.sweep.live import GUTTER, elapsed_tick, level_strip, live_rows, sweep_axis
from tests.panels.sweep_views import running

NAMES = {"proxy": "A", "spark-a": "B"}


def live_of(seconds: float, *levels: tuple[str, int]) -> LiveSeries:
    """Return a sweep of `seconds` in which each of `levels` took the same time; the last one runs."""
    each = seconds / len(levels)
    spans = tuple(
        LevelSpan(LevelKey(name, c), at * each, (at + 1) * each if at + 1 < len(levels) else None)
        for at, (name, c) in enumerate(levels)
    )
    count = int(seconds)
    return LiveSeries(0.0, 1.0, count, tps=(1.0,) * count, spans=spans)


@pytest.mark.parametrize(
    ("step", "span", "labels"),
    [
        (20, 59.0, ["0", "20 s", "40 s"]),
        (20, 100.0, ["0", "0:20", "0:40", "1:00", "1:20", "1:40"]),
        (60, 200.0, ["0", "1 min", "2 min", "3 min"]),
        (1800, 6000.0, ["0", "0:30 h", "1:00 h", "1:30 h"]),
        (3600, 8000.0, ["0", "1 h", "2 h"]),
    ],
)
def test_the_labels_of_an_axis_are_alike(step: int, span: float, labels: list[str]) -> None:
    """All labels of an axis have the same spelling."""
    assert [elapsed_tick(at, step, span) for at in range(0, int(span) + 1, step)] == labels


def test_narrow_levels_are_named_by_their_number_and_one_letter() -> None:
    """The letter stands where the target changes, in the colour of its curve; the unit is at the left."""
    levels = [("proxy", 1), ("proxy", 4), ("proxy", 16), ("spark-a", 1), ("spark-a", 4), ("spark-a", 16)]
    axis = sweep_axis(live_of(120, *levels), 26)
    row = level_strip(axis, NAMES, lengths=False)
    text = row_text(row)
    assert text.startswith("levels c =")
    assert text[GUTTER:].replace("▏", " ").replace("─", " ").split() == [
        "A",
        "1",
        "4",
        "16",
        "B",
        "1",
        "4",
        "16",
    ]
    assert ("A ", part_role(0)) in row
    assert ("B ", part_role(1)) in row


@pytest.mark.parametrize(
    ("names", "parts"),
    [
        (["spark-a", "spark-b"], ["-a", "-b"]),
        (["10.0.0.11:8000", "10.0.0.12:8000"], [".11", ".12"]),
        (["node1", "node2"], ["1", "2"]),
        (["proxy", "spark"], ["proxy", "spark"]),
        (["spark", "spark-2"], ["spark", "spark-2"]),
    ],
)
def test_names_are_shortened_to_where_they_differ(names: list[str], parts: list[str]) -> None:
    """Numbers stay whole, and no name becomes empty."""
    assert short_names(names) == parts


def test_two_servers_have_two_colours_where_their_names_have_rows() -> None:
    """Names in full, as everywhere; a graph without rows for them shows both together in one colour."""
    live = running().live
    assert live is not None
    two = replace(
        live, backends=tuple(replace(live.backends[0], name=name) for name in ("spark-a", "spark-b"))
    )

    def roles(rows: list[Row]) -> set[str]:
        return {role.partition("/")[0] for row in rows for text, role in row if text.strip()}

    rows = live_rows(two, {}, 76, 10)
    assert [row_text(row).split("  ")[0].strip() for row in rows[3:5]] == ["⣿ spark-a", "⡪ spark-b"]
    assert row_text(rows[4])[:GUTTER].endswith("0┤")
    assert {"generation", "prompt"} <= roles(rows[1:5])
    low = live_rows(two, {}, 76, 4)
    assert "prompt" not in roles(low[1:3])


def test_what_is_not_in_flight_is_no_queue() -> None:
    """Six of eight agents have a request in flight: the graph reaches six, and dots say what is missing."""
    live = replace(
        live_of(30.0, ("proxy", 8)),
        in_flight=(6.0,) * 30,
        in_flight_now=6.0,
        concurrency=(8.0,) * 30,
    )
    rows = live_rows(live, NAMES, 80, 20)
    at = next(index for index, row in enumerate(rows) if row_text(row).startswith("in flight"))
    graph = rows[at : at + 3]
    assert "·" in row_text(graph[0])[GUTTER:] or "·" in row_text(graph[1])[GUTTER:]
    assert row_text(graph[2])[:GUTTER].split()[:3] == ["·", "no", "request"]
    assert not any("waiting" in role for row in graph for _, role in row)


def test_requests_beyond_the_level_are_not_of_it() -> None:
    """With others' requests, four are in flight although the level has one."""
    live = replace(
        live_of(30.0, ("proxy", 1)),
        in_flight=(4.0,) * 30,
        concurrency=(1.0,) * 30,
        ttft_ms=((60.0, 400.0),) * 30,
    )
    for flying, words in ((4.0, "4"), (1.0, "1 of 1")):
        rows = [row_text(row) for row in live_rows(replace(live, in_flight_now=flying), NAMES, 80, 14)]
        at = next(index for index, row in enumerate(rows) if row.startswith("in flight"))
        assert rows[at + 1][:GUTTER].strip() == words
    assert any(row.startswith("TTFT ─p50 500 ms") for row in rows)
