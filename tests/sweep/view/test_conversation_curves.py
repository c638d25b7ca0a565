"""Curves of users and agents with their limits."""

from __future__ import annotations

import pytest

from sparktop.model.load import LoadKind
from sparktop.sweep.result.agents.parts import AgentsResult, UsersResult
from sparktop.sweep.result.figures import Latency, Rate
from sparktop.sweep.result.results import LevelResult
from sparktop.sweep.view.curves import sweep_plots
from tests.sweep.made_results import made_sweep


def users(number: int, response_s: float, per_s: float) -> LevelResult:
    """Return a level of users who think for 9 s."""
    return LevelResult(
        concurrency=number,
        load=LoadKind.USERS,
        value=number,
        requests_per_s=Rate(mean=per_s),
        users=UsersResult(think_s=9.0, response_s=response_s, requests_per_s=per_s),
    )


def agents(number: int, ttft_ms: float) -> LevelResult:
    """Return a level of agents of whose conversations 8 fit."""
    found = AgentsResult(
        after_tool_ms=Latency(mean=ttft_ms, count=40),
        context_tokens=1100.0,
        shared_tokens=100,
        kv_capacity_tokens=8100.0,
    )
    return LevelResult(concurrency=number, load=LoadKind.AGENTS, value=number, agents=found)


def test_users_lie_below_both_limits() -> None:
    """The line of users that never wait for one another, and the most that the server completed."""
    plot = sweep_plots(made_sweep(("a", (users(1, 1.0, 0.1), users(20, 2.0, 1.8), users(40, 11.0, 2.0)))))[0]
    assert plot.metric == "requests_per_s"
    own, alone = plot.lines
    assert [point.value.mean for point in alone.points] == pytest.approx([0.1, 2.0, 4.0])
    assert all(a.value.mean <= b.value.mean + 1e-9 for a, b in zip(own.points, alone.points, strict=True))
    assert [(limit.value, limit.upright) for limit in plot.limits] == [(2.0, False)]
    assert plot.limits[0].words == "a completed at most 2.00 requests/s"


def test_conversations_that_fit_are_a_line_between_the_levels() -> None:
    """Between 4 and 16 agents stands the line of 8; without a level beyond it there is none."""
    plot = sweep_plots(made_sweep(("a", (agents(4, 300), agents(16, 3000)))))[0]
    assert plot.metric == "ttft_tool_ms"
    assert [(limit.value, limit.upright) for limit in plot.limits] == [(8.0, True)]
    assert plot.limits[0].words == "8 conversations fit the KV cache of a"
    assert not sweep_plots(made_sweep(("a", (agents(2, 300), agents(4, 300)))))[0].limits
