"""The settings in the menu: the present value of each, and how to change to its next value."""

from __future__ import annotations

from collections.abc import Callable

from textual.app import App

from sparktop.ui.host import Host
from sparktop.ui.screens.menu import Setting

_BOXES = {
    "nodes": ("nodes", "nodes"),
    "backends": ("backends", "backends"),
    "events": ("alerts and events", "events-box"),
    "self_cost": ("self", "self"),
}
"""By field name of `Boxes`: the name of a box in the menu, and the name of its key in the table of keys."""


def settings(app: App[None], host: Host) -> list[Setting]:
    """Return every setting of the application, in the order of the menu."""
    overview, cadence = host.overview, host.cadence
    shown = {key.name: key.shown for key in overview.key_table}

    def box(name: str) -> Setting:
        def value() -> str:
            return "shown" if getattr(overview.view.boxes, name) else "hidden"

        words, key = _BOXES[name]
        return Setting(f"box: {words}", value, lambda: overview.action_box(name), shown[key])

    def ask_filter() -> None:
        app.pop_screen()
        overview.action_filter()

    def either(*, now: Callable[[], bool], yes: str, no: str) -> Callable[[], str]:
        return lambda: yes if now() else no

    slow = either(now=lambda: cadence.low_bandwidth, yes="on", no="off")
    frozen = either(now=lambda: overview.frozen, yes="past", no="live")
    interval = f"{shown['slower']} {shown['faster']}"
    return [
        Setting("view", lambda: overview.view.preset.value, overview.action_next_view, shown["view"]),
        Setting("sorted by", lambda: overview.view.sort.value, overview.action_next_sort, shown["sort"]),
        Setting("filter", lambda: overview.view.filter or "none", ask_filter, shown["filter"]),
        *(box(name) for name in _BOXES),
        Setting("poll every", lambda: f"{cadence.asked_s:g} s", host.action_next_interval, interval),
        Setting("low bandwidth", slow, host.action_low_bandwidth),
        Setting("theme", lambda: app.theme, host.action_next_theme, shown["theme"]),
        Setting("picture", frozen, overview.action_freeze, shown["freeze"]),
        Setting("save a snapshot", lambda: "JSON, this folder", host.action_save_snapshot, shown["snapshot"]),
    ]
