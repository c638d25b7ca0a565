"""Rows of the history for sweeps of agents."""

from __future__ import annotations

from pathlib import Path

from sparktop.model.load import LoadKind, LoadMode
from sparktop.sweep.history import stored_row
from sparktop.sweep.result.results import AgentsResult, LevelResult, Rate
from sparktop.sweep.result.store import StoredSweep
from tests.sweep.made_results import made_sweep


def test_a_sweep_of_agents_is_named_by_its_workload_and_has_a_rate() -> None:
    """The preset of its runs is not its name; the output rate stands for a decode rate."""
    level = LevelResult(
        concurrency=4, load=LoadKind.AGENTS, value=4, output_tps=Rate(mean=75.0), agents=AgentsResult()
    )
    made = made_sweep(("a", (level,)))
    agents = {"load": LoadKind.AGENTS, "mode": LoadMode.AGENTS, "workload": "coder", "preset": "quick"}
    result = made.model_copy(update={"plan": made.plan.model_copy(update=agents)})
    row = stored_row(StoredSweep(Path("one.json"), result))
    assert (row.name, row.decode_tps) == ("agents coder", 75.0)
    assert row.most is not None
    assert row.most.label == "4 agents"
