"""One cause for the levels of a search whose limits of decode steps alternate."""

from __future__ import annotations

import pytest

from sparktop.model.load import LoadKind
from sparktop.sweep.result.results import LevelResult, LimitSide
from sparktop.sweep.run.capacity.causes import common_cause, with_common_cause

READS, COMPUTES, KV = "memory bandwidth", "decode compute", "KV cache"


def _levels(*kinds: str) -> dict[float, LevelResult]:
    return {
        float(load): LevelResult(
            concurrency=load,
            load=LoadKind.AGENTS,
            value=load,
            runs=1,
            limited_by=LimitSide(kind=kind, reason=f"figures at {load}"),
        )
        for load, kind in enumerate(kinds, 1)
    }


@pytest.mark.parametrize(
    ("kinds", "cause"),
    [
        ((READS, READS, COMPUTES, READS, COMPUTES), READS),
        ((READS, COMPUTES, COMPUTES), None),
        ((READS, KV, READS, KV), None),
        ((), None),
    ],
)
def test_limits_of_steps_that_alternate_are_noise(kinds: tuple[str, ...], cause: str | None) -> None:
    """Computing takes over from reading once; limits with evidence of their own are no noise."""
    assert common_cause(_levels(*kinds).values()) == cause


def test_levels_get_the_common_cause_beside_their_own_figures() -> None:
    """A level that seemed limited by computing says so in its reason."""
    levels = with_common_cause(_levels(READS, COMPUTES, READS, KV))
    found = [level.limited_by for level in levels.values() if level.limited_by is not None]
    assert [one.kind for one in found] == [READS, READS, READS, KV]
    assert (
        found[1].reason == "as at most levels; by its own figures decode compute, within noise: figures at 2"
    )
