"""Correct routing in unusual groups is not called bad: drained, late or full backends, late polls."""

from __future__ import annotations

import heapq
import math
import random
from collections import Counter
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from sparktop.analysis.balance import rules
from sparktop.analysis.balance.judge import judge
from sparktop.analysis.balance.load_grid import GroupLoad, LoadTrack
from sparktop.analysis.balance.swings import find_herds
from sparktop.model.balance import BalanceWord as Is
from tests.analysis.balance.routed_load import cut

LIFE_S, CLIENTS, HZ = 8.0, 32, 2.0


def fresh_least_busy(seconds: float, away: Sequence[tuple[int, float, float]]) -> list[LoadTrack]:
    """Simulate two backends behind least-busy on current counts, with times at which one gets no requests.

    `away` has (backend, from, to) in seconds. Every request lasts 8 s, and its client sends the next one at
    once.
    """
    loads, came = [0, 0], [0, 0]
    due = [(LIFE_S * client / CLIENTS, -1) for client in range(CLIENTS)]
    columns: list[list[list[float]]] = [[[], []], [[], []]]
    times = [step / HZ for step in range(int(seconds * HZ))]
    for at in times:
        while due[0][0] <= at:
            now, backend = heapq.heappop(due)
            if backend >= 0:
                loads[backend] -= 1
            up = [one for one in (0, 1) if not any(one == gone and a <= now < b for gone, a, b in away)]
            chosen = min(up, key=lambda one: loads[one])
            loads[chosen] += 1
            came[chosen] += 1
            heapq.heappush(due, (now + LIFE_S, chosen))
        for index, column in enumerate(columns):
            column[0].append(float(loads[index]))
            column[1].append(float(came[index]))
    return [
        LoadTrack(f"spark-{name}", times, column[0], [0.0] * len(times), arrived=column[1])
        for name, column in zip("ab", columns, strict=True)
    ]


def words(tracks: Sequence[LoadTrack], life_s: float | None = LIFE_S) -> set[Is]:
    """Return the verdicts of all windows, judged every 5 s."""
    end = int(tracks[0].times_s[-1])
    return {
        judge(GroupLoad("proxy", [cut(track, at - 320, at) for track in tracks], life_s), float(at)).word
        for at in range(50, end, 5)
    }


@pytest.mark.parametrize(
    "away",
    [[(1, 60.0, 120.0), (0, 240.0, 300.0), (1, 420.0, 480.0)], [(1, 0.0, 100.0)]],
    ids=["drained", "late"],
)
def test_a_backend_that_comes_back_may_get_everything(away: list[tuple[int, float, float]]) -> None:
    """After a drain, or when joining late, a backend may get all requests until the split is even."""
    assert not words(fresh_least_busy(600, away)) & {Is.OSCILLATING, Is.STARVED}


def test_a_backend_that_gets_nothing_is_said_to_be_away() -> None:
    """A drained backend is reported as away, not as starved."""
    found = judge(GroupLoad("proxy", fresh_least_busy(115, [(1, 60.0, 120.0)]), LIFE_S), 114.0)
    assert found.word is not Is.STARVED
    assert found.away_s["spark-b"] == pytest.approx(54.0, abs=2.0)
    assert any("spark-b got no request for 54 s: drained, cooling" in reason for reason in found.reasons)


def test_one_of_four_drained_is_no_herd() -> None:
    """If one of four backends is drained, random routing over the others is not called herds."""
    dice, times = random.Random(4), [float(step) for step in range(90)]  # noqa: S311 - a repeatable draw
    came: list[list[float]] = [[0.0], [0.0], [0.0], [0.0]]
    for at in times[1:]:
        chosen = Counter(dice.choice((0, 1, 2) if 20 <= at < 70 else (0, 1, 2, 3)) for _ in range(12))
        for index, column in enumerate(came):
            column.append(column[-1] + chosen[index])
    tracks = [
        LoadTrack(f"spark-{index}", times, [12.0 if column is not came[3] else 4.0] * 90, arrived=column)
        for index, column in enumerate(came)
    ]
    found = find_herds(tracks, 89.0, 80.0, 1.0, 4.0)
    assert found is not None
    assert found.spread < 1.5
    assert found.chance > 0.1


def test_what_a_prefill_worker_makes_does_not_grow_with_its_batch() -> None:
    """Unequal queues of prefill workers lose nothing: their throughput does not grow with the batch."""
    dice, times = random.Random(7), [float(step) for step in range(120)]  # noqa: S311 - a repeatable draw
    tracks = []
    for name, mean in (("spark-a", 48), ("spark-b", 3)):
        load = [float(max(1, mean + dice.randint(-mean + 1, mean - 1))) for _ in times]
        made = [one / (0.33 + 0.028 * one) for one in load]
        tracks.append(LoadTrack(name, times, load, [0.0] * 120, made))
    group = GroupLoad("proxy prefill", tracks, 4.6)
    assert judge(group, 119.0).word is Is.STARVED
    found = judge(replace(group, prefills=True), 119.0)
    assert found.word is not Is.STARVED
    assert found.lost_percent == pytest.approx(0.0, abs=0.01)
    assert found.step_time is None


def bursts(late_s: float) -> list[LoadTrack]:
    """Return two backends that fill and empty together, polled once a second, the second `late_s` later."""
    times = [float(step) for step in range(120)]

    def load(at: float) -> float:
        return 8.0 if at % 3.7 < 2.6 else 0.0

    return [
        LoadTrack("spark-a", times, [load(at) for at in times]),
        LoadTrack("spark-b", [at + late_s for at in times], [load(at + late_s) for at in times]),
    ]


def test_looks_apart_in_time_make_no_convoys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loads that rise and fall together, polled 400 ms apart, are not called convoys."""
    tracks = bursts(0.4)
    found = judge(GroupLoad("proxy", tracks, 2.6), 119.4)
    assert found.word is not Is.OSCILLATING
    assert found.looks_apart_ms == pytest.approx(400.0)
    monkeypatch.setattr(rules, "LOOKS_APART_S", math.inf)
    assert judge(GroupLoad("proxy", tracks, 2.6), 119.4).word is Is.OSCILLATING
