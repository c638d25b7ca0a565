"""Starts the search for how many agents the selected servers can take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparktop.errors import UsageError
from sparktop.model.event import Severity
from sparktop.sweep.plan.conversations.reading import find_conversations
from sparktop.sweep.plan.presets import Wishes
from sparktop.sweep.plan.searched import default_capacity, make_capacity_plan
from sparktop.sweep.run.context.length import beyond_context

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparktop.model.snapshot import BackendView
    from sparktop.panels.board.scene import PanelKey
    from sparktop.ui.screens.desk import SweepDesk

_SHORTEST = "chat"
"""The conversations that need the shortest context."""


def start_capacity(desk: SweepDesk, selected: PanelKey | None, backends: Sequence[BackendView] = ()) -> None:
    """Start the countdown of a search with the default conditions on the selected panel's targets.

    The agents' conversations are the default ones or, if a server among `backends` has too short a context
    for these, chats.
    """
    found = desk.targets((), selected)
    if found is None:
        return
    try:
        plan = make_capacity_plan(default_capacity(), found, Wishes(), guard=desk.watch.guard)
        loaded = [view for view in backends if view.name in plan.loaded]
        if beyond_context(plan.lengths[0], plan.tg, loaded, plan.conversations) is not None:
            short = Wishes(conversations=find_conversations(_SHORTEST))
            plan = make_capacity_plan(default_capacity(), found, short, guard=desk.watch.guard)
    except UsageError as error:
        desk.say(f"how many: {error}", Severity.WARNING)
        return
    desk.announce(plan)
