"""A group is judged without a backend whose samples are too few, and says so by name."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sparktop.analysis.balance.judge import judge
from sparktop.analysis.balance.load_grid import GroupLoad, LoadTrack
from sparktop.model.balance import BalanceWord as Is

NOW_S = 120.0


def steady(name: str, every_s: float = 1.0, missing: int = 0) -> LoadTrack:
    """Return two minutes of a backend with 10 requests; every `missing`-th sample is left out."""
    count = int(NOW_S / every_s)
    times = [number * every_s for number in range(count) if not missing or number % missing]
    return LoadTrack(name, times, [10.0] * len(times), generation_tps=[300.0] * len(times))


def judged(tracks: Sequence[LoadTrack]) -> tuple[Is, str, tuple[str, ...]]:
    """Return (verdict, reasons, backends judged)."""
    found = judge(GroupLoad("proxy", tracks, 5.0), NOW_S)
    return found.word, "; ".join(found.reasons), found.backends


@pytest.mark.parametrize("count", [3, 8, 36])
def test_a_member_without_enough_samples_is_left_out_by_name(count: int) -> None:
    """One of several that has 88 % of its samples does not take the verdict from the others."""
    others = [steady(f"spark-{number}") for number in range(count - 1)]
    word, said, backends = judged([*others, steady("late", missing=8)])
    assert word is Is.BALANCED
    assert "late has only 8" in said
    assert said.endswith("% of its samples; judged without it")
    assert "late" not in backends
    assert len(backends) == count - 1


@pytest.mark.parametrize("every_s", [2.0, 5.0, 10.0])
def test_a_member_that_is_polled_more_slowly_is_left_out_by_name(every_s: float) -> None:
    """A server whose page takes seconds neither coarsens the samples of the others nor silences them."""
    others = [steady(f"spark-{number}") for number in range(4)]
    word, said, backends = judged([*others, steady("slow", every_s)])
    assert word is Is.BALANCED
    assert f"slow is polled every {every_s:g} s, the others every 1 s; judged without it" in said
    assert "slow" not in backends


def test_of_two_none_is_left_out() -> None:
    """A balance is between two: with one of them missing samples there is no verdict, and the reason."""
    word, said, _ = judged([steady("spark-a"), steady("late", missing=8)])
    assert word is Is.UNKNOWN
    assert "late has only 8" in said
