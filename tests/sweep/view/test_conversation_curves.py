"""Curves of agents with their limits."""

from __future__ import annotations

from sparktop.model.load import LoadKind
from sparktop.sweep.result.results import AgentsResult, Latency, LevelResult
from sparktop.sweep.view.curves import sweep_plots
from tests.sweep.made_results import made_sweep


def agents(number: int, ttft_ms: float) -> LevelResult:
    """Return a level of agents of whose conversations 8 fit."""
    found = AgentsResult(
        after_tool_ms=Latency(mean=ttft_ms, count=40),
        context_tokens=1100.0,
        shared_tokens=100,
        kv_capacity_tokens=8100.0,
    )
    return LevelResult(concurrency=number, load=LoadKind.AGENTS, value=number, agents=found)


def test_conversations_that_fit_are_a_line_between_the_levels() -> None:
    """Between 4 and 16 agents stands the line of 8; without a level beyond it there is none."""
    plot = sweep_plots(made_sweep(("a", (agents(4, 300), agents(16, 3000)))))[0]
    assert plot.metric == "ttft_tool_ms"
    assert [(limit.value, limit.upright) for limit in plot.limits] == [(8.0, True)]
    assert plot.limits[0].words == "8 conversations fit the KV cache of a"
    assert not sweep_plots(made_sweep(("a", (agents(2, 300), agents(4, 300)))))[0].limits
