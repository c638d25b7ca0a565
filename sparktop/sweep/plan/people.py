"""The settings of plans with users or agents."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from sparktop.errors import UsageError
from sparktop.model.load import LoadKind, LoadMode
from sparktop.sweep.plan.conversations.draw import Draw
from sparktop.sweep.plan.conversations.preset import ConversationPreset
from sparktop.sweep.plan.plan import Order, Plan, Timeouts

THINK_S = 30.0
"""Median think time in seconds, if none is given."""
USERS_S = 120.0
"""Default duration in seconds of a level of users."""
_THINK_SIGMA = math.log(4) / 1.2816
"""The 90th percentile of the think time is four times its median."""
_MOST_TOKENS = 100_000_000
_PATIENCE = Timeouts(first_token_s=1800.0, between_tokens_s=120.0, whole_s=3600.0)
"""Warm-up calls send the pasts of all conversations at once."""
_SETTINGS: dict[str, Any] = {
    "mode": LoadMode.AGENTS,
    "concurrency": (),
    "climb_to": None,
    "runs": 1,
    "more_runs": False,
    "duration_s": None,
    "requests": None,
    "warmup": False,
}
"""What replaces the settings of a preset; conversations have warm-up calls of their own."""


def agents_settings(preset: ConversationPreset) -> dict[str, Any]:
    """Return the settings of a plan of agents: token counts are means per call of the conversations."""
    return {
        **_SETTINGS,
        "duration_s": preset.duration_s,
        "prompt_lengths": (max(1, round(preset.new_tokens.typical)),),
        "tg": max(1, round(preset.output_tokens.typical)),
        "timeouts": _PATIENCE,
        "conversations": preset,
    }


def users_settings() -> dict[str, Any]:
    """Return the settings of a plan of users."""
    return {**_SETTINGS, "duration_s": USERS_S}


def with_users(plan: Plan, think_s: float) -> Plan:
    """Return a plan of users with their requests, as conversations of a single call."""
    users = ConversationPreset(
        "users",
        new_tokens=Draw(plan.lengths[0]),
        output_tokens=Draw(plan.tg),
        human_requests=Draw(1),
        max_context_tokens=_MOST_TOKENS,
        human_pause_s=Draw(think_s, _THINK_SIGMA),
    )
    return replace(plan, conversations=users)


def think_s_of(plan: Plan) -> float | None:
    """Return the median think time of a plan of users; None for other plans."""
    users = plan.conversations if plan.kind is LoadKind.USERS else None
    return None if users is None else users.human_pause_s.median


def check_conversations(plan: Plan) -> None:
    """Check the settings of a plan of users or agents.

    Raises:
        UsageError: a setting contradicts another.
    """
    option = "--users" if plan.kind is LoadKind.USERS else "--agents"
    if plan.conversations is None or not plan.points:
        raise UsageError("--mode agents: give the numbers of conversations with --agents or --users")
    if plan.requests is not None:
        raise UsageError(f"{option}: a level lasts --duration seconds: leave out --requests")
    if plan.slo:
        raise UsageError(f"--slo looks for a concurrency: leave out {option}")
    if plan.runs > 1 and plan.order is Order.ABBA:
        raise UsageError(f"{option}: --order abba needs one run a level: leave out --runs")
    if len(plan.lengths) > 1:
        raise UsageError(f"{option} has one prompt length: give one with --pp")
