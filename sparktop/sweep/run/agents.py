"""The agents of a level's run, and what the servers add to its result."""

from __future__ import annotations

from collections.abc import Iterator

from sparktop.sweep.generator.wire import ConversationLoad
from sparktop.sweep.plan.plan import Load, Plan
from sparktop.sweep.result.results import LevelResult, Validity
from sparktop.sweep.run.server_side import Counters
from sparktop.sweep.terms.definitions import FEW_CALLS, UNANSWERED
from sparktop.sweep.terms.statistics import P90_FROM

_LEAST_TAIL_S, _LONGEST_TAIL_S = 30.0, 120.0
"""Bounds of the seconds after the measured time in which its last answers are waited for."""
_RAMP_SHARE, _LONGEST_SHARE = 0.1, 0.5
"""Bounds of the time over which agents start, as shares of a level's duration."""
_LONGEST_RAMP_S = 30.0
"""Most seconds over which agents start, where their pauses are not known."""


def ramp_s(plan: Plan) -> float:
    """Return the seconds over which agents start; their requests are not measured before its end.

    They start within the mean pause between two calls, so that calls come as often from the start as later
    on, and do not wait for one another more than they will. That is a tenth of the level's duration at
    least, and half of it at most.
    """
    duration_s, preset = plan.duration_s or 0.0, plan.conversations
    tenth_s = min(_LONGEST_RAMP_S, _RAMP_SHARE * duration_s)
    return tenth_s if preset is None else min(max(tenth_s, preset.pause_s), _LONGEST_SHARE * duration_s)


def agents_tail_s(plan: Plan) -> float:
    """Return the most seconds for which a level waits for answers after the measured time."""
    return min(_LONGEST_TAIL_S, max(_LEAST_TAIL_S, plan.duration_s or 0.0))


def conversations_of(
    plan: Plan, load: Load, max_model_len: int | None, run: int = 0
) -> ConversationLoad | None:
    """Return what the agents of a run do; None for other kinds of load.

    They depend on the plan's seed and the number of the run, so that all targets and levels get the same
    conversations. The levels of a capacity search get others: together they say more about the servers.
    """
    preset = plan.conversations
    if preset is None:
        return None
    duration_s = plan.duration_s or preset.duration_s
    seed = str(plan.seed) if not run else f"{plan.seed}/{run}"
    if plan.capacity is not None:
        seed = f"{plan.seed}/{load.word}/{run}"
    return ConversationLoad(
        preset=preset,
        seed=seed,
        duration_s=duration_s,
        ramp_s=ramp_s(plan),
        tail_s=agents_tail_s(plan),
        max_model_len=max_model_len,
    )


def conversation_doubts(level: LevelResult) -> Iterator[Validity]:
    """Yield the reasons to doubt a level of agents: few calls, or calls without an answer."""
    agents = level.agents
    if agents is None:
        return
    name, judged = "tool", agents.after_tool_ms
    if judged is None:
        name, judged = "person", agents.after_human_ms
    count = 0 if judged is None else judged.count or 0
    if count < P90_FROM:
        message = (
            f"TTFT rests on {count} calls after a {name}; a 90th percentile needs {P90_FROM}: "
            "make levels last longer"
        )
        yield Validity(code=FEW_CALLS, message=message)
    if agents.unanswered:
        message = f"{agents.unanswered} requests had no answer when the run ended: their TTFT is not known"
        yield Validity(code=UNANSWERED, message=message)


def with_servers(
    level: LevelResult, plan: Plan, kv_capacity_tokens: float | None, grown: Counters | None
) -> LevelResult:
    """Return a level of agents with what its servers report; other levels unchanged.

    `grown` is the growth of their counters over the level, None if unknown.
    """
    agents, preset = level.agents, plan.conversations
    if agents is None or preset is None:
        return level
    counters = grown or Counters()
    update = {
        "workload": preset.name,
        "shared_tokens": preset.shared_tokens,
        "kv_capacity_tokens": kv_capacity_tokens,
        "server_cached_tokens": counters.cache_hits,
        "server_queried_tokens": counters.cache_queries,
    }
    return level.model_copy(update={"agents": agents.model_copy(update=update)})
