"""Every screen of sweeps at every size: no large empty area, and no sentence that is cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from sparktop.model.sweep import HistoryRow, SweepStatus, SweepView
from sparktop.panels.parts.text import Row, row_text
from sparktop.panels.sweep.evidence import evidence_screen
from sparktop.panels.sweep.history import history_screen
from sparktop.panels.sweep.screen import sweep_screen
from sparktop.panels.sweep.topology import difference_screen, topology_screen
from sparktop.sweep.compare.series import series_of
from sparktop.sweep.view.difference import difference
from tests.panels.sweep.test_capacity_rows import SEARCH
from tests.panels.sweep_views import done, evidence, finished, result, running, with_servers

SIZES = ((60, 16), (80, 24), (120, 36), (200, 50))
MOST_EMPTY = 0.25
"""Largest empty rectangle, as a share of the screen."""
LONG = (
    "c4: simple-shuffle is best: +26 % decode and −23 % TTFT, both against proxy, +28 % prefill over spark-a",
    "Decode: simple-shuffle best at c48 (+5 % against solo)",
    "3 of 12 levels have a warning: see why before you trust them",
)
HEADLINE = "best: c = 32, 333 tok/s, still rising: try c = 64; TTFT p90 stays under 2 s up to c = 16"

Draw = Callable[[int, int], list[Row]]


def view_of(status: SweepStatus) -> SweepView:
    return replace(
        finished(), status=status, verdict=LONG, headline=HEADLINE, words=f"{status.value} after 40 s"
    )


def sweep(view: Callable[[], SweepView], *, curves: bool = True) -> Draw:
    return lambda width, height: sweep_screen(view(), width, height, curves=curves)


def history(count: int) -> Draw:
    at = datetime(2026, 1, 2, tzinfo=UTC)
    rows = [HistoryRow(f"{index}.json", at, "quick", "done", ("proxy",)) for index in range(count)]
    return lambda width, height: history_screen(rows, width, height, preview=done())


def topologies(width: int, height: int) -> list[Row]:
    found = done().topologies
    assert found is not None
    return topology_screen(found, width, height, plots=done().plots)


def changes(width: int, height: int) -> list[Row]:
    before, after = series_of(result())
    return difference_screen(difference(before, after), width, height, scroll=0)


STATES: dict[str, Draw] = {
    "running": sweep(running),
    "running on 4 servers": sweep(lambda: with_servers(running(), 4)),
    "finished": sweep(finished),
    "finished, over time": sweep(finished, curves=False),
    "stored": sweep(done),
    "stored, one target": sweep(lambda: replace(done(), rows=done().rows[:3], levels=done().levels[:3])),
    **{one.value: sweep(lambda one=one: view_of(one)) for one in SweepStatus if one.over},  # type: ignore[misc] # a default binds the loop's value
    "searching": sweep(lambda: replace(running(), searches=(SEARCH,))),
    "searched": sweep(lambda: replace(finished(), searches=(SEARCH,))),
    "topologies": topologies,
    "evidence": lambda width, height: evidence_screen(evidence(), width, height),
    "history of 1": history(1),
    "history of 5": history(5),
    "history of 60": history(60),
    "difference": changes,
}


def texts(rows: Sequence[Row]) -> list[str]:
    return [row_text(row) for row in rows]


def largest_empty(rows: Sequence[str]) -> int:
    """Return the cells of the largest rectangle of spaces."""
    heights = [0] * max(map(len, rows))
    largest = 0
    for row in rows:
        heights = [
            height + 1 if index >= len(row) or row[index] == " " else 0
            for index, height in enumerate(heights)
        ]
        for index, height in enumerate(heights):
            start = index
            while height and start >= 0 and heights[start] >= height:
                start -= 1
            stop = index
            while height and stop < len(heights) and heights[stop] >= height:
                stop += 1
            largest = max(largest, height * (stop - start - 1) if height else 0)
    return largest


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("state", STATES)
def test_no_large_area_is_empty(state: str, size: tuple[int, int]) -> None:
    """A screen that has something to show uses its room: at most a quarter of it in one place is empty."""
    width, height = size[0], size[1] - 1
    rows = texts(STATES[state](width, height))[:height]
    assert largest_empty(rows) <= MOST_EMPTY * size[0] * size[1], "\n".join(rows)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("status", [one for one in SweepStatus if one.over])
def test_a_sentence_is_whole_or_not_there(status: SweepStatus, size: tuple[int, int]) -> None:
    """The answer always is; findings that have no room are counted, and never cut in the middle."""
    rows = texts(sweep_screen(view_of(status), size[0], size[1] - 1))
    said = " ".join(" ".join(row.strip("│ ") for row in rows).split())
    assert HEADLINE in said
    for sentence in LONG:
        assert sentence in said or sentence[:30] not in said, "\n".join(rows)
    if not all(sentence in said for sentence in LONG):
        assert "more: n shows all" in said
