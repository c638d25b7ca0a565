"""The content of the options menu: settings of the screen and of the configuration file, and saving them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace
from textual.app import App

from sparktop.config.options import (
    ALERTS,
    ALL,
    EVENTS,
    GUARD,
    INTERVAL,
    LOW_BANDWIDTH,
    RECORDER,
    STATES,
    VIEW,
    Option,
    shown_place,
)
from sparktop.config.toml_text import SettingPath, TomlValue, with_values
from sparktop.config.trust import Approvals, is_discovered, refusal
from sparktop.config.watch import read_config
from sparktop.errors import ConfigError
from sparktop.files import PRIVATE, find_config, usual_places, write_whole
from sparktop.model.targets import Thresholds, Watch
from sparktop.model.text import clean, shown_path
from sparktop.panels.board.view import WINDOWS_S, GraphStyle, Preset, Sort, View
from sparktop.panels.server.table import ColumnOrder
from sparktop.store import Store
from sparktop.ui.remembered import settings_of
from sparktop.ui.screens.menu import MenuScreen, MenuSetting
from sparktop.ui.screens.overview import OverviewScreen
from sparktop.ui.sweep_desk import Host, SweepDesk

THEME = Option(
    ("theme",), "theme", (), "Colours of everything on the screen; sparktop config themes lists them."
)
_ALL = (*ALL, *VIEW, THEME)
_HERE = ", this machine"
"""Follows the file's path in `Watch.source` where the file names no targets."""


class Configured:
    """The present values of the settings, and those of the configuration file."""

    def __init__(self, watch: Watch, apply: Callable[[Watch], None], env: Mapping[str, str] | None) -> None:
        """Start with the settings `watch`, as read from the file; `apply` puts changed ones into effect.

        `env` determines the file; with None nothing can be saved.
        """
        self.watch = watch
        self._saved = watch
        self._apply = apply
        self._env = env

    def setting(self, option: Option) -> MenuSetting:
        """Return the line of the menu for `option`."""
        return MenuSetting(
            option.name,
            lambda: _value_text(option, self.watch),
            lambda step: self._change_option(option, step),
            option.help,
            live=option.live,
            file_name=shown_place(option),
            default=_value_text(option, Watch()),
            changed=lambda: option.place in self.unsaved_values(),
        )

    def _change_option(self, option: Option, step: int) -> None:
        value = option.step(option.value(self.watch), step or 1, around=step == 0)
        self.watch = option.put(self.watch, value)
        self._apply(self.watch)

    def unsaved_values(self) -> dict[SettingPath, TomlValue]:
        """Return the values that were changed and not saved yet, by their place in the file."""
        pairs = ((option.place, option.value(self.watch), option.value(self._saved)) for option in _ALL)
        return {path: now for path, now, saved in pairs if now is not None and now != saved}

    @property
    def path(self) -> Path | None:
        """The configuration file, which may not exist yet; None if nothing can be saved."""
        if self._env is None:
            return None
        named = Path(self._saved.source.removesuffix(_HERE))
        if named.suffix == ".toml" and named.is_file():
            return named
        file = find_config(None, self._env)
        if file is None or (is_discovered(None, file, self._env) and refusal(file, file.stat()) is not None):
            return usual_places(self._env)[-1]
        return file

    def save(self, *, interval_s: float, low_bandwidth: bool, theme: str | None, view: View) -> str:
        """Write the changed values into the file, and nothing else; return a message for the user.

        The arguments are settings that keys and the board change too; a `theme` of None is not saved.
        """
        theme = theme or self.watch.theme
        self.watch = replace(
            self.watch,
            interval_s=interval_s,
            low_bandwidth=low_bandwidth,
            theme=theme,
            view=settings_of(view, self._saved.view),
        )
        path, values = self.path, self.unsaved_values()
        if path is None:
            return "there is no configuration file here"
        if not values:
            return "nothing was changed since the last save"
        try:
            _write_file(path, values, self._env or {})
        except (ConfigError, OSError) as error:
            return f"not saved: {clean(error, 300)}"
        self._saved = self.watch
        return (
            f"saved in {shown_path(path)}: {', '.join('.'.join(path_of_value) for path_of_value in values)}"
        )


def _value_text(option: Option, watch: Watch) -> str:
    """Return the value of `option` in `watch` as text with its unit."""
    value = option.value(watch)
    if value is None:
        return "unset"
    if value == 0 and option.zero:
        return option.zero
    if isinstance(value, bool):
        value = "on" if value else "off"
    text = f"{value:g}" if isinstance(value, float | int) else value
    return f"{text} {option.unit}".rstrip()


def _write_file(path: Path, values: Mapping[SettingPath, TomlValue], env: Mapping[str, str]) -> None:
    """Write the file with other values; a file that was approved stays so.

    Raises:
        ConfigError: the file cannot be read or changed, or it would not be valid afterwards.
        OSError: the file cannot be written; the old one is unchanged.
    """
    from sparktop.config.schema import check  # late: few sessions write

    approvals = Approvals(env)
    is_file = path.exists()
    before, status = read_config(path) if is_file else ("", None)
    text = with_values(before, values)
    check(path, text)
    is_approved = status is not None and approvals.has(path, status, before)
    path.parent.mkdir(parents=True, exist_ok=True)
    # A link stays one: its target is replaced.
    write_whole(path.resolve(), text, path.stat().st_mode & 0o777 if is_file else PRIVATE)
    if is_approved:
        approvals.add(path, path.stat(), text)


_BOXES = {
    "nodes": ("nodes", "nodes", "Machines: CPU, memory, GPU, network."),
    "backends": ("backends", "backends", "Inference servers: load, token rates, latencies."),
    "events": ("alerts and events", "events-box", "What needs attention now, and what happened."),
    "self_cost": ("self", "self", "What sparktop itself costs: CPU, memory, bytes to the terminal."),
}
"""By field name of `Boxes`: the name of a box, the name of its key in the table of keys, what it shows."""
_VIEW_HELP = (
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


def configured_live(desk: SweepDesk, store: Store | None) -> Configured:
    """Return the settings of the file, which take effect at once in `desk` and `store` when they change."""

    def apply(watch: Watch) -> None:
        desk.watch = watch
        thresholds = Thresholds(watch.thresholds, watch.node_thresholds)
        if store is not None and store.thresholds != thresholds:
            store.set_thresholds(thresholds)

    return Configured(desk.watch, apply, desk.env)


def menu_screen(app: App[None], host: Host, configured: Configured) -> MenuScreen:
    """Return the menu, which saves in the configuration file what was changed here and by keys."""

    def save() -> str:
        return configured.save(
            interval_s=host.cadence.asked_s,
            low_bandwidth=host.cadence.low_bandwidth,
            theme=None if host.no_color_wanted else app.theme,
            view=host.overview.view,
        )

    savable = None if configured.path is None else save
    return MenuScreen(pages(app, host, configured), lambda: host.role_styles, savable)


def replay_menu_screen(app: App[None], host: Host, speed: Callable[[], int]) -> MenuScreen:
    """Return the menu of a recording: what changes its picture, and the `speed` at which it is played."""
    keys = host.overview.key_names
    play = MenuSetting(
        "speed",
        lambda: f"{speed()} ×",
        lambda step: host.action_interval(step or 1),
        "How many recorded seconds one second of playing shows.",
        f"{keys['slower']} {keys['faster']}",
    )
    board = [setting for setting in _board_settings(app, host) if setting.name != _PICTURE_NAME]
    program = [setting for setting in _program_settings(host) if setting.name == LOW_BANDWIDTH.name]
    pages = {"board": board, "recording": [play, *program]}
    return MenuScreen(pages, lambda: host.role_styles)


def pages(app: App[None], host: Host, configured: Configured) -> dict[str, Sequence[MenuSetting]]:
    """Return the settings of each page of the menu by its title, in their order."""
    option = configured.setting
    return {
        "board": _board_settings(app, host),
        "alerts": [*map(option, ALERTS)],
        "states": [*map(option, STATES)],
        "events": [*map(option, EVENTS)],
        "sweeps": [*map(option, GUARD)],
        "program": [*_program_settings(host), *map(option, RECORDER)],
    }


def _board_settings(app: App[None], host: Host) -> list[MenuSetting]:
    overview = host.overview
    keys = overview.key_names

    def box(name: str) -> MenuSetting:
        def value() -> str:
            return "shown" if getattr(overview.view.boxes, name) else "hidden"

        words, key, about = _BOXES[name]
        return MenuSetting(f"box: {words}", value, lambda _: overview.action_box(name), about, keys[key])

    def ask_filter(_: int) -> None:
        if isinstance(app.screen, MenuScreen):
            app.screen.dismiss()
        overview.action_filter()

    def picture() -> str:
        return "past" if overview.frozen else "live"

    return [
        _view_setting(overview, "view", "preset", list(Preset), _VIEW_HELP, keys["view"]),
        _view_setting(overview, "sorted by", "sort", list(Sort), _SORT, keys["sort"]),
        MenuSetting("filter", lambda: overview.view.filter or "none", ask_filter, _FILTER, keys["filter"]),
        _view_setting(overview, "graphs", "graphs", list(GraphStyle), _GRAPHS),
        _view_setting(overview, "seconds of the graphs", "window_s", WINDOWS_S, _WINDOW),
        _view_setting(overview, "columns of the list", "columns", list(ColumnOrder), _COLUMNS),
        *(box(name) for name in _BOXES),
        MenuSetting(
            THEME.name,
            lambda: app.theme,
            lambda step: host.action_next_theme(step or 1),
            THEME.help,
            keys["theme"],
            file_name="theme",
        ),
        MenuSetting(_PICTURE_NAME, picture, lambda _: overview.action_freeze(), _PICTURE, keys["freeze"]),
    ]


def _view_setting(
    overview: OverviewScreen, name: str, field: str, choices: Sequence[object], about: str, key: str = ""
) -> MenuSetting:
    """Return the setting of a field of the view; one that has a `key` shows all panels, as its key does."""

    def change(step: int) -> None:
        choice_index = choices.index(getattr(overview.view, field)) + (step or 1)
        overview.zoomed = None if key else overview.zoomed
        overview.show_as(replace(overview.view, **{field: choices[choice_index % len(choices)]}))  # type: ignore[arg-type]  # of the field's type

    file_name = next((shown_place(option) for option in VIEW if option.name == name), "")
    return MenuSetting(
        name, lambda: str(getattr(overview.view, field)), change, about, key, file_name=file_name
    )


def _program_settings(host: Host) -> list[MenuSetting]:
    cadence = host.cadence
    keys = host.overview.key_names

    def interval(step: int) -> None:
        host.action_interval(step) if step else host.action_next_interval()

    return [
        MenuSetting(
            INTERVAL.name,
            lambda: f"{cadence.asked_s:g} s",
            interval,
            INTERVAL.help,
            f"{keys['slower']} {keys['faster']}",
            file_name="interval_s",
        ),
        MenuSetting(
            LOW_BANDWIDTH.name,
            lambda: "on" if cadence.low_bandwidth else "off",
            lambda _: host.action_low_bandwidth(),
            LOW_BANDWIDTH.help,
            file_name="low_bandwidth",
        ),
    ]
