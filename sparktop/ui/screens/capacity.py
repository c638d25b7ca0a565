"""Starts the search for how many agents the selected servers can take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparktop.errors import UsageError
from sparktop.model.event import Severity
from sparktop.model.targets import SweepSpec
from sparktop.sweep.plan.capacity import default_capacity, fitted, make_capacity_plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparktop.model.snapshot import BackendView
    from sparktop.panels.board.layout import PanelKey
    from sparktop.ui.screens.desk import SweepDesk


def start_capacity(desk: SweepDesk, selected: PanelKey | None, backends: Sequence[BackendView] = ()) -> None:
    """Start the countdown of a search with the default conditions on the selected panel's targets.

    The agents' conversations are chosen to fit the context of the servers among `backends`; those that report
    theirs only later are fitted before the first request.
    """
    found = desk.targets((), selected)
    if found is None:
        return
    try:
        plan = make_capacity_plan(default_capacity(), found, SweepSpec(), guard=desk.watch.guard)
    except UsageError as error:
        desk.say(f"how many: {error}", Severity.WARNING)
        return
    contexts = {view.name: view.max_model_len for view in backends if view.name in plan.loaded}
    plan, words = fitted(plan, {name: tokens for name, tokens in contexts.items() if tokens is not None})
    desk.announce(plan, words)
