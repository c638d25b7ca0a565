"""The command line that repeats a sweep of agents."""

from __future__ import annotations

import pytest

from sparktop.model.load import LoadKind, LoadMode
from sparktop.sweep.formats.written import repeat_command
from sparktop.sweep.result.results import CapacityResult, PlanResult, SweepResult
from tests.sweep.made_results import made_level, made_sweep


def with_plan(plan: PlanResult) -> SweepResult:
    """Return a result of this plan."""
    agents = {"mode": LoadMode.AGENTS, "concurrency": (), "runs": 1, "warmup": False, "seed": 5}
    made = made_sweep(("a", (made_level(1),)))
    return made.model_copy(update={"plan": plan.model_copy(update=agents)})


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (
            PlanResult(load=LoadKind.AGENTS, points=("1", "4"), workload="coder", duration_s=600, pp=9, tg=9),
            "--runs 1 --duration 600 --order ascending --api chat --seed 5 --agents 1,4 --workload coder",
        ),
        (
            PlanResult(load=LoadKind.AGENTS, points=("2",), workload="mine"),
            "--runs 1 --order ascending --api chat --seed 5 --agents 2 --workload mine.toml",
        ),
    ],
)
def test_agents_are_repeated_with_their_own_options(plan: PlanResult, words: str) -> None:
    """No concurrency and no mode: the axis is that of agents; a workload sets the lengths."""
    assert repeat_command(with_plan(plan)) == f"sparktop sweep a {words}"


def test_a_search_for_the_largest_load_is_repeated_as_such() -> None:
    """With its kind of load and its conditions; the levels are the search's own choice."""
    made = with_plan(PlanResult(load=LoadKind.AGENTS, points=("1",), workload="chat", duration_s=90))
    found = CapacityResult(load=LoadKind.AGENTS, conditions=("ttft_p90_ms ≤ 2000",), most=64)
    command = repeat_command(made.model_copy(update={"capacity": found}))
    assert command == (
        "sparktop capacity a --slo ttft_p90_ms=2000 --workload chat --most 64 --api chat --seed 5 --agents"
    )


def test_a_model_that_was_named_is_named_again() -> None:
    """One that all targets share; unlike ones stand in the configuration file."""
    made = made_sweep(("a", []), ("b", []))
    named = [target.model_copy(update={"asked_model": "m/x y"}) for target in made.targets]
    assert "--model" not in repeat_command(made)
    assert "--model 'm/x y'" in repeat_command(made.model_copy(update={"targets": tuple(named)}))
    assert "--model" not in repeat_command(made.model_copy(update={"targets": (named[0], made.targets[1])}))
