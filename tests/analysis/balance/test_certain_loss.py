"""A loss of throughput is shown only if step times are certain enough; limits for late polls and failures."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest

from sparktop.analysis.balance import rules
from sparktop.analysis.balance.judge import judge
from sparktop.analysis.balance.load_grid import GroupLoad, LoadTrack
from sparktop.model.balance import BalanceWord as Is

BASE_S, SLOPE_S, HZ = 0.035, 0.0005, 4


def makes(batch: float) -> float:
    """Return the tokens per second of a batch."""
    return batch / (BASE_S + SLOPE_S * batch)


def convoy(name: str, pattern: Sequence[tuple[float, float]], noise: float = 0.0) -> LoadTrack:
    """Return the track of a backend that repeats (batch, seconds); rates are over the last second."""
    dice = random.Random(name)  # noqa: S311 - repeatable chance, not secrets
    turn = [batch for batch, lasts in pattern for _ in range(round(lasts * HZ))]
    loads = [turn[index % len(turn)] for index in range(120 * HZ)]
    rates = [
        sum(map(makes, loads[max(0, index - HZ + 1) : index + 1])) / HZ * math.exp(dice.gauss(0, noise))
        for index in range(len(loads))
    ]
    return LoadTrack(name, [index / HZ for index in range(len(loads))], loads, [0.0] * len(loads), rates)


CONVOYS = ((46.0, 3.0), (0.0, 1.5), (2.0, 3.0))
TURNED = (*CONVOYS[1:], CONVOYS[0])


def test_a_loss_is_shown_where_the_steps_are_known() -> None:
    """With known step times, the loss of two convoys follows from these."""
    tracks = [convoy("a", CONVOYS), convoy("b", TURNED)]
    found = judge(GroupLoad("proxy", tracks, 3.0), tracks[0].times_s[-1])
    window = round(found.window_s * HZ)
    columns = [track.running[-window:] for track in tracks]
    made = sum(makes(load) for column in columns for load in column)
    best = sum(2 * makes(sum(row) / 2) for row in zip(*columns, strict=True))
    assert found.lost_percent == pytest.approx(100 * (1 - made / best), abs=1.5)


def test_a_loss_is_not_shown_where_the_slope_is_a_guess() -> None:
    """If rates scatter too widely to determine the slope, no loss is shown."""
    tracks = [convoy("a", CONVOYS, noise=0.4), convoy("b", TURNED, noise=0.4)]
    found = judge(GroupLoad("proxy", tracks, 3.0), tracks[0].times_s[-1])
    assert found.step_time is not None
    assert found.lost_percent is None


def bursts(late_s: float) -> list[LoadTrack]:
    """Return four backends with the same load, polled once a second, the last one `late_s` later."""

    def load(at: float) -> float:
        return max(0.0, 40.0 - 18.0 * (at % 2.6))

    tracks: list[LoadTrack] = []
    for index, name in enumerate("abcd"):
        times = [at + late_s * index / 3 for at in range(120)]
        tracks.append(LoadTrack(name, times, [float(round(load(at))) for at in times]))
    return tracks


def test_bursts_seen_at_different_times_are_no_swing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bursts on all backends at once, polled up to 262 ms apart, are not taken for a swing."""
    group = GroupLoad("proxy", bursts(0.262), 1.5)
    assert judge(group, 119.5).word is not Is.OSCILLATING
    monkeypatch.setattr(rules, "LOOKS_EXPLAIN", math.inf)
    assert judge(group, 119.5).word is Is.OSCILLATING


def test_backends_that_fail_by_turns_need_fewer_cycles() -> None:
    """If both backends of a pair failed repeatedly, fewer lead changes are needed; if only one did, not."""
    assert rules.fail_by_turns([3, 12])
    assert not rules.fail_by_turns([50, 2])
    assert not rules.fail_by_turns([9, 9, 9])
    assert rules.least_lead_changes(failing=True) < rules.least_lead_changes(failing=False)
