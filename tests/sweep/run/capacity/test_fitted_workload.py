"""How many agents: what they do is chosen to fit the context of the servers, and is said."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sparktop.model.snapshot import BackendView
from sparktop.model.targets import SweepSpec
from sparktop.sweep.plan.capacity import default_capacity, fitted, make_capacity_plan
from sparktop.sweep.plan.plan import SweepTarget
from sparktop.sweep.run.preparation import beyond_context
from sparktop.sweep.run.progress import Notice, PlanFitted
from tests.sweep.watched_servers import QUICK, watched

TARGETS = (SweepTarget("spark-a", "http://127.0.0.1:1"),)


def test_what_the_user_chose_stays() -> None:
    """A workload that was named is not replaced, also where it does not fit; the message has what fits."""
    spec = SweepSpec(workload="coder-quick")
    plan = make_capacity_plan(default_capacity(), TARGETS, spec)
    assert fitted(plan, {"spark-a": 4_096}) == (plan, "")
    view = BackendView("spark-a", "http://127.0.0.1:1", "g", max_model_len=4_096)
    why = beyond_context(1, 1, [view], plan.conversations)
    assert why is not None
    assert "workloads that fit: chat)" in why
    assert "--" not in why, "the words are read on the screen too, which has no options"


@pytest.mark.process
@pytest.mark.timeout(120)
async def test_a_context_that_is_known_late_still_counts() -> None:
    """Servers that report their context after the key was pressed are sent what fits them."""
    async with watched(profile=replace(QUICK, max_model_len=4_096)) as servers:
        plan = make_capacity_plan(default_capacity(), servers.targets, SweepSpec())
        runner = servers.runner(plan)
        runner.listen(lambda event: runner.cancel() if isinstance(event, PlanFitted) else None)
        result = await runner.run()
    assert result.plan.workload == "chat"
    (words,) = [event.message for event in servers.events if isinstance(event, Notice)]
    assert words.startswith("workload chat instead of coder-quick")
