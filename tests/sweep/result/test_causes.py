"""One cause for the levels of a search whose limits of decode steps alternate."""

from __future__ import annotations

import pytest

from sparktop.model.load import LoadKind
from sparktop.sweep.plan.capacity import parse_conditions
from sparktop.sweep.plan.plan import Capacity
from sparktop.sweep.result.level import common_cause, with_common_cause
from sparktop.sweep.result.results import LevelResult, LimitSide
from sparktop.sweep.run.capacity import capacity_answer
from sparktop.sweep.run.judgement import Judged, Shares, Verdict
from sparktop.sweep.run.search import CapacitySearch

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
    """Limits of computing and of reading that alternate are noise, unless one has evidence of its own."""
    assert common_cause(_levels(*kinds).values()) == cause


def test_levels_get_the_common_cause_beside_their_own_figures() -> None:
    """A level that seemed limited by computing says so in its reason."""
    levels = with_common_cause(_levels(READS, COMPUTES, READS, KV))
    found = [level.limited_by for level in levels.values() if level.limited_by is not None]
    assert [one.kind for one in found] == [READS, READS, READS, KV]
    assert (
        found[1].reason == "as at most levels; by its own figures decode compute, within noise: figures at 2"
    )


def test_an_answer_names_the_common_cause_with_the_figures_of_the_nearest_level() -> None:
    """3 fails, seemingly limited by computing, most levels by reading: the figures are those of 2."""
    (condition,) = parse_conditions("ttft_p90_ms=2000", LoadKind.AGENTS)
    search = CapacitySearch(Capacity(LoadKind.AGENTS, (condition,)))
    for load in (1.0, 2.0, 3.0, 4.0):
        met = 100 if load < 3 else 0
        shares = Shares(condition, 0.9, met, 100, 0.0, 1.0)
        search.add(load, Judged(met > 0, Verdict.UNSURE, (shares,), 100, 1.0))
    levels = _levels(READS, READS, COMPUTES, READS)
    assert levels[2.0].limited_by is not None
    advised = levels[2.0].limited_by.model_copy(update={"hint": "more requests"})
    levels[2.0] = levels[2.0].model_copy(update={"limited_by": advised})
    answer = capacity_answer(search, levels, complete=True)
    assert answer.fails == 3
    assert answer.ran_out is not None
    found = answer.ran_out
    assert (found.kind, found.value, found.hint, found.elsewhere) == (READS, 2.0, None, {})
    assert found.evidence.startswith("figures at 2")
