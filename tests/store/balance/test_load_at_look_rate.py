"""The picture of a group that is polled four times a second: a swing of seconds at its full height."""

from __future__ import annotations

from itertools import pairwise

import pytest
from msgspec.structs import replace

from sparktop.model.snapshot import Snapshot
from sparktop.panels.group.graphs import balance_axis, group_lines, line_slots
from tests.store.fed_traces import START, Pair, lane

pytestmark = pytest.mark.long

PERIOD_S = 5.0
TOP = 32.0


def swing(at: float) -> float:
    """Return the load of the first of two backends at a time: it rises and falls linearly."""
    phase = at / PERIOD_S % 1.0
    return TOP * (2 * phase if phase < 0.5 else 2 - 2 * phase)


def swung(interval_s: float, *, asked_s: float = 30.0, quick_s: float = 90.0) -> Snapshot:
    """Poll a swing at its interval for `asked_s`, then four times a second; return the snapshot."""
    pair = Pair(interval_s=interval_s)
    times = [index * interval_s for index in range(round(asked_s / interval_s))]
    times += [asked_s + index / 4 for index in range(round(quick_s * 4))]
    for at in times:
        pair.at = START + at
        load = swing(at)
        for name, here in zip(pair.backends, (load, TOP - load), strict=True):
            pair.tell(name, lane("0", here, 0.0, 1000.0 * at, life_s=2.6))
        seen = pair.look()
    return seen


def drawn(shown: Snapshot, width: int) -> list[float | None]:
    """Return the first backend's running requests as a picture of `width` cells shows them."""
    balance = shown.balance[0]
    lines = group_lines(balance, shown.backends)
    return line_slots(lines[0], balance_axis(balance, lines, shown, width), width)[0]


def swings(values: list[float | None]) -> int:
    """Count the tops: rises from below a sixth to above five sixths."""
    sides = [value > TOP / 2 for value in values if value is not None and abs(value - TOP / 2) > TOP / 3]
    return sum(later and not earlier for earlier, later in pairwise(sides))


@pytest.mark.parametrize("interval_s", [1.0, 2.0, 5.0])
def test_a_swing_of_five_seconds_is_drawn_at_its_full_height(interval_s: float) -> None:
    """There are twelve tops in a minute, each within 5 % of the real one, whatever the interval."""
    values = drawn(swung(interval_s), 120)
    assert swings(values) == 12
    known = [value for value in values if value is not None]
    assert len(known) == len(values)
    assert max(known) > 0.95 * TOP
    assert min(known) < 0.05 * TOP


def test_tokens_that_are_counted_at_the_end_are_drawn_too() -> None:
    """A server whose counter moves per finished request keeps its line of tokens."""
    pair = Pair()
    for step in range(120):
        pair.at = START + step / 4
        for name in pair.backends:
            told = replace(
                lane("0", 8.0, 0.0, 50.0 * step),
                per_finished_request=True,
                generation_tps_gauge=200.0,
            )
            pair.tell(name, told)
        shown = pair.look()
    balance = shown.balance[0]
    lines = group_lines(balance, shown.backends)
    assert lines[0].generation_tps.last == 200.0
    assert balance.step_time is None
