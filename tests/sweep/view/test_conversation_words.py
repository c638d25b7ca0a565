"""Words of sweeps of users and agents."""

from __future__ import annotations

import pytest

from sparktop.model.load import LoadKind, LoadMode
from sparktop.sweep.result.axis import PlanResult
from sparktop.sweep.view.result import plan_words


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (PlanResult(load=LoadKind.AGENTS, workload="coder", duration_s=600), "coder, 600 s each"),
        (
            PlanResult(load=LoadKind.USERS, pp=128, tg=64, think_s=30, duration_s=120),
            "128 → 64 tokens, 30 s think time, 120 s each",
        ),
        (PlanResult(load=LoadKind.AGENTS), "?"),
    ],
)
def test_a_plan_says_what_users_and_agents_do(plan: PlanResult, words: str) -> None:
    """Agents have a workload, users lengths and a think time."""
    assert plan_words(plan.model_copy(update={"mode": LoadMode.AGENTS, "runs": 1})) == words
