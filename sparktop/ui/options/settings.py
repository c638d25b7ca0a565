"""The pages of the options menu: every setting with its value, its meaning and how it changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec.structs import replace
from textual.app import App

from sparktop.config.options import (
    ALERTS,
    EVENTS,
    GUARD,
    INTERVAL,
    LOW_BANDWIDTH,
    RECORDER,
    STATES,
    VIEW,
    shown_place,
)
from sparktop.model.targets import Thresholds, Watch
from sparktop.panels.backend.table import ColumnOrder
from sparktop.panels.board.view import WINDOWS_S, GraphStyle, Preset, Sort, View
from sparktop.store import Store
from sparktop.ui.host import Host
from sparktop.ui.options.configured import THEME, Configured
from sparktop.ui.screens.menu import MenuScreen
from sparktop.ui.screens.overview import OverviewScreen
from sparktop.ui.screens.setting import Setting, Tab
from sparktop.ui.sweep_desk import SweepDesk

T = TypeVar("T")
Put = Callable[[View, T], View]
_BOXES = {
    "nodes": ("nodes", "nodes", "Machines: CPU, memory, GPU, network."),
    "backends": ("backends", "backends", "Inference servers: load, token rates, latencies."),
    "events": ("alerts and events", "events-box", "What needs attention now, and what happened."),
    "self_cost": ("self", "self", "What sparktop itself costs: CPU, memory, bytes to the terminal."),
}
"""By field name of `Boxes`: the name of a box, the name of its key in the table of keys, what it shows."""
_VIEW = (
    "How backends are shown: watch (panels with graphs), compact (a table), one backend (all of it), "
    "wall (small tiles). It is remembered."
)
_SORT = "Order of backends and nodes. Live values are sorted every 5 s. It is remembered."
_FILTER = "Shows only backends and nodes with all these words in name, model, URL or state."
_GRAPHS = "Characters of all graphs: braille dots, or blocks for fonts without braille. It is remembered."
_WINDOW = "Least time that the graphs of the board show; wide screens may show more. It is remembered."
_COLUMNS = (
    "Columns that stand first in the list of backends (view compact, or many backends): where not all fit, "
    "the last ones are left out. It is remembered."
)
_PICTURE = "Live, or paused at a moment of the last 30 minutes, while polling goes on."
_PICTURE_NAME = "picture"
_SNAPSHOT = "Writes this moment as JSON, Markdown and HTML into the current folder."

_FOUND = "Writes a commented sparktop.toml with all that is on the screen, if there is no file."


def configured_live(desk: SweepDesk, store: Store | None) -> Configured:
    """Return the settings of the file, which take effect at once in `desk` and `store` when they change."""

    def apply(watch: Watch) -> None:
        desk.watch = watch
        wanted = Thresholds(watch.thresholds, watch.node_thresholds)
        if store is not None and store.thresholds != wanted:
            store.set_thresholds(wanted)

    return Configured(desk.watch, apply, desk.env)


def menu_screen(app: App[None], host: Host, configured: Configured, place: str = "") -> MenuScreen:
    """Return the menu, which saves in the configuration file what was changed here and by keys.

    `place` is the name in the file of the setting to begin at; "" for the first.
    """

    def save() -> str:
        return configured.save(
            interval_s=host.cadence.asked_s,
            low_bandwidth=host.cadence.low_bandwidth,
            theme=None if host.no_color_wanted else app.theme,
            view=host.overview.view,
        )

    savable = None if configured.path is None else save
    return MenuScreen(pages(app, host, configured), lambda: host.role_styles, savable, place)


def replay_menu_screen(app: App[None], host: Host, speed: Callable[[], int], place: str = "") -> MenuScreen:
    """Return the menu of a recording: what changes its picture, and the `speed` at which it is played."""
    shown = {key.name: key.shown for key in host.overview.key_table}
    play = Setting(
        "speed",
        lambda: f"{speed()} ×",
        lambda step: host.action_interval(step or 1),
        "How many recorded seconds one second of playing shows.",
        f"{shown['slower']} {shown['faster']}",
    )
    board = [setting for setting in _board(app, host) if setting.name != _PICTURE_NAME]
    program = [setting for setting in _program(host) if setting.name == LOW_BANDWIDTH.name]
    tabs = [Tab("board", tuple(board)), Tab("recording", (play, *program))]
    return MenuScreen(tabs, lambda: host.role_styles, place=place)


def pages(app: App[None], host: Host, configured: Configured) -> list[Tab]:
    """Return the pages of the menu in their order."""
    option = configured.setting
    return [
        Tab("board", tuple(_board(app, host))),
        Tab("alerts", tuple(map(option, ALERTS))),
        Tab("states", tuple(map(option, STATES))),
        Tab("events", tuple(map(option, EVENTS))),
        Tab("sweeps", tuple(map(option, GUARD))),
        Tab(
            "program",
            (*_program(host), *map(option, RECORDER), _snapshot(host), _found(app, host, configured)),
        ),
    ]


def _board(app: App[None], host: Host) -> list[Setting]:
    overview = host.overview
    shown = {key.name: key.shown for key in overview.key_table}

    def box(name: str) -> Setting:
        def value() -> str:
            return "shown" if getattr(overview.view.boxes, name) else "hidden"

        words, key, about = _BOXES[name]
        return Setting(f"box: {words}", value, lambda _: overview.action_box(name), about, shown[key])

    def ask_filter(_: int) -> None:
        if isinstance(app.screen, MenuScreen):
            app.screen.dismiss()
        overview.action_filter()

    def view(step: int) -> None:
        presets = list(Preset)
        at = presets.index(overview.view.preset) + (step or 1)
        _show(host, replace(overview.view, preset=presets[at % len(presets)]))

    def sort(step: int) -> None:
        sorts = list(Sort)
        at = sorts.index(overview.view.sort) + (step or 1)
        _show(host, replace(overview.view, sort=sorts[at % len(sorts)]))

    def picture() -> str:
        return "past" if overview.frozen else "live"

    return [
        Setting("view", lambda: overview.view.preset.value, view, _VIEW, shown["view"]),
        Setting("sorted by", lambda: overview.view.sort.value, sort, _SORT, shown["sort"]),
        Setting("filter", lambda: overview.view.filter or "none", ask_filter, _FILTER, shown["filter"]),
        *_graphs(overview),
        *(box(name) for name in _BOXES),
        Setting(
            THEME.name,
            lambda: app.theme,
            lambda step: host.action_next_theme(step or 1),
            THEME.help,
            shown["theme"],
            file_name="theme",
        ),
        Setting(_PICTURE_NAME, picture, lambda _: overview.action_freeze(), _PICTURE, shown["freeze"]),
    ]


def _graphs(overview: OverviewScreen) -> list[Setting]:
    """Return the settings of graphs and of the list of backends."""

    def choice(name: str, about: str, now: Callable[[View], T], choices: Sequence[T], put: Put[T]) -> Setting:
        file_name = next(shown_place(option) for option in VIEW if option.name == name)

        def change(step: int) -> None:
            at = choices.index(now(overview.view)) + (step or 1)
            overview.show_as(put(overview.view, choices[at % len(choices)]))

        return Setting(name, lambda: str(now(overview.view)), change, about, file_name=file_name)

    return [
        choice(
            "graphs",
            _GRAPHS,
            lambda view: view.graphs,
            list(GraphStyle),
            lambda v, one: replace(v, graphs=one),
        ),
        choice(
            "seconds of the graphs",
            _WINDOW,
            lambda view: view.window_s,
            WINDOWS_S,
            lambda view, one: replace(view, window_s=one),
        ),
        choice(
            "columns of the list",
            _COLUMNS,
            lambda view: view.columns,
            list(ColumnOrder),
            lambda view, one: replace(view, columns=one),
        ),
    ]


def _show(host: Host, view: View) -> None:
    host.overview.zoomed = None
    host.overview.show_as(view)


def _program(host: Host) -> list[Setting]:
    cadence = host.cadence
    shown = {key.name: key.shown for key in host.overview.key_table}

    def interval(step: int) -> None:
        host.action_interval(step) if step else host.action_next_interval()

    return [
        Setting(
            INTERVAL.name,
            lambda: f"{cadence.asked_s:g} s",
            interval,
            INTERVAL.help,
            f"{shown['slower']} {shown['faster']}",
            file_name="interval_s",
        ),
        Setting(
            LOW_BANDWIDTH.name,
            _either(lambda: cadence.low_bandwidth),
            lambda _: host.action_low_bandwidth(),
            LOW_BANDWIDTH.help,
            file_name="low_bandwidth",
        ),
    ]


def _snapshot(host: Host) -> Setting:
    key = next((key.shown for key in host.overview.key_table if key.name == "snapshot"), "")

    def save(_: int) -> None:
        host.action_save_snapshot()

    return Setting("save a snapshot", lambda: "in this folder", save, _SNAPSHOT, key)


def _writing(app: App[None], host: Host, configured: Configured) -> list[Setting]:
    return [_snapshot(host), _found(app, host, configured)]


def _found(app: App[None], host: Host, configured: Configured) -> Setting:
    """Return the line that writes a new configuration file; in the file are the targets on the screen."""

    def write(_: int) -> None:
        shown = host.overview.shown
        if shown is not None:
            app.notify(configured.write_found(host.targets(), shown), markup=False)

    def value() -> str:
        return "exists" if configured.path is not None and configured.path.exists() else "none"

    return Setting("write a configuration", value, write, _FOUND)


def _either(now: Callable[[], bool]) -> Callable[[], str]:
    return lambda: "on" if now() else "off"
