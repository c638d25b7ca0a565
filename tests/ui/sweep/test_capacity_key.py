"""The key that asks how many agents the selection can take."""

from __future__ import annotations

from types import SimpleNamespace

from sparktop.model.load import LoadKind
from sparktop.model.snapshot import BackendView
from sparktop.model.targets import Watch
from sparktop.sweep.plan.plan import Plan, SweepTarget
from sparktop.ui.sweep_desk import SweepDesk


class _Desk(SweepDesk):
    """A desk that records what is announced."""

    def __init__(self, targets: list[SweepTarget] | None, *views: BackendView) -> None:
        host = SimpleNamespace(overview=SimpleNamespace(shown=SimpleNamespace(backends=views)))
        super().__init__(host, host, watch=Watch(), store=None, env=None, state=None)  # type: ignore[arg-type]  # what it calls
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
    desk.start_capacity(None)
    (plan,) = desk.plans
    assert (plan.kind, plan.preset) == (LoadKind.AGENTS, "capacity")
    none = _Desk(None)
    none.start_capacity(None)
    assert none.plans == []


def test_a_short_context_is_asked_about_chats() -> None:
    """Conversations that a server refuses from their first call on are not sent."""
    plans, notes = list[Plan](), list[str]()
    for context in (4096, 131_072):
        view = BackendView("spark", "http://127.0.0.1:1", "g", max_model_len=context)
        desk = _Desk([SweepTarget("spark", "http://127.0.0.1:1")], view)
        desk.start_capacity(None)
        plans, notes = plans + desk.plans, notes + desk.notes
    names = [plan.conversations.name for plan in plans if plan.conversations is not None]
    assert names == ["chat", "coder-quick"]
    assert notes == [
        (
            "workload chat instead of coder-quick, which needs about 8,796 tokens a request: "
            "spark takes at most 4,096"
        ),
    ]
