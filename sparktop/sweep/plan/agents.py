"""The settings of plans with agents."""

from __future__ import annotations

from typing import Any

from sparktop.errors import UsageError
from sparktop.model.load import LoadMode
from sparktop.sweep.plan.conversations.preset import ConversationPreset
from sparktop.sweep.plan.plan import Order, Plan, Timeouts

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


def check_conversations(plan: Plan) -> None:
    """Check the settings of a plan of agents.

    Raises:
        UsageError: a setting contradicts another.
    """
    if plan.conversations is None or not plan.points:
        raise UsageError("--mode agents: give the numbers of conversations with --agents")
    if plan.requests is not None:
        raise UsageError("--agents: a level lasts --duration seconds: leave out --requests")
    if plan.slo:
        raise UsageError("--slo looks for a concurrency: leave out --agents")
    if plan.runs > 1 and plan.order is Order.ABBA:
        raise UsageError("--agents: --order abba needs one run a level: leave out --runs")
    if len(plan.lengths) > 1:
        raise UsageError("--agents has one prompt length: give one with --pp")
