"""The key that asks how many agents the selection can take."""

from __future__ import annotations

from sparktop.model.load import LoadKind
from sparktop.model.snapshot import BackendView
from sparktop.model.targets import Watch
from sparktop.sweep.plan.plan import Plan, SweepTarget
from sparktop.ui.screens.capacity import start_capacity


class _Desk:
    """A desk that records what is announced."""

    watch = Watch()

    def __init__(self, targets: list[SweepTarget] | None) -> None:
        self._targets = targets
        self.plans: list[Plan] = []
        self.notes: list[str] = []

    def targets(self, wanted: object, selected: object) -> list[SweepTarget] | None:
        assert not wanted
        assert selected is None
        return self._targets

    def announce(self, plan: Plan, note: str = "") -> None:
        self.plans.append(plan)
        self.notes += [note] if note else []


def test_it_announces_a_search_for_agents() -> None:
    """With the default conditions, on what is selected; nothing without a target."""
    desk = _Desk([SweepTarget("spark", "http://127.0.0.1:1")])
    start_capacity(desk, None)  # type: ignore[arg-type]  # what it calls
    (plan,) = desk.plans
    assert (plan.kind, plan.preset) == (LoadKind.AGENTS, "capacity")
    none = _Desk(None)
    start_capacity(none, None)  # type: ignore[arg-type]  # as above
    assert none.plans == []


def test_a_short_context_is_asked_about_chats() -> None:
    """Conversations that a server refuses from their first call on are not sent."""
    desk = _Desk([SweepTarget("spark", "http://127.0.0.1:1")])
    for context in (4096, 131_072):
        view = BackendView("spark", "http://127.0.0.1:1", "g", max_model_len=context)
        start_capacity(desk, None, [view])  # type: ignore[arg-type]  # what it calls
    names = [plan.conversations.name for plan in desk.plans if plan.conversations is not None]
    assert names == ["chat", "coder-quick"]
    assert desk.notes == [
        (
            "workload chat instead of coder-quick, which needs about 8,796 tokens a request: "
            "spark takes at most 4,096"
        ),
    ]
