"""What the overview keeps from one session to the next: visible boxes, preset, sort orders, graphs."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec.structs import asdict, replace

from sparktop.files import BaseFolder, folder_of, write_whole
from sparktop.model.targets import ViewSettings
from sparktop.model.text import reason_of
from sparktop.panels.board.layout import Boxes
from sparktop.panels.board.view import WINDOWS_S, GraphStyle, Preset, Sort, View
from sparktop.panels.server.table import ColumnOrder


def state_file(env: Mapping[str, str]) -> Path:
    """Return the path of the state file `view.json`, which is in the same folder as the log.

    The folder is below `$XDG_STATE_HOME`.
    """
    return folder_of(env, BaseFolder.STATE) / "view.json"


_REMEMBERED: Mapping[str, Any] = {
    "boxes": Boxes,
    "preset": Preset,
    "sort": Sort,
    "graphs": GraphStyle,
    "window_s": Literal[WINDOWS_S],
    "columns": ColumnOrder,
}
"""The fields of a view that are kept, and their types."""


def recall(path: Path) -> View:
    """Read the stored view from `path`; anything missing, unreadable or unknown has its default value."""
    try:
        data = msgspec.json.decode(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return View()
    stored = data if isinstance(data, dict) else {}
    fields: dict[str, Any] = {}
    for name, kind in _REMEMBERED.items():
        with suppress(KeyError, msgspec.ValidationError):
            fields[name] = msgspec.convert(stored[name], kind)
    view = View(**fields)
    return view if any(asdict(view.boxes).values()) else replace(view, boxes=Boxes())


def with_configured(view: View, settings: ViewSettings) -> View:
    """Return `view` with what the configuration file sets, which holds at each start."""
    return replace(
        view,
        graphs=view.graphs if settings.graphs is None else GraphStyle(settings.graphs),
        window_s=view.window_s if settings.window_s is None else settings.window_s,
        columns=view.columns if settings.columns is None else ColumnOrder(settings.columns),
        wall_from=settings.wall_from,
    )


def settings_of(view: View, saved: ViewSettings) -> ViewSettings:
    """Return the settings of `view` for the configuration file.

    Defaults are None if the file does not set them, as its present settings `saved` say.
    """
    default = View()
    is_unset = saved.graphs is None and view.graphs is default.graphs
    graphs = None if is_unset else view.graphs.value
    window_s = None if saved.window_s is None and view.window_s == default.window_s else view.window_s
    is_unset = saved.columns is None and view.columns is default.columns
    columns = None if is_unset else view.columns.value
    return ViewSettings(graphs=graphs, window_s=window_s, columns=columns, wall_from=saved.wall_from)


def remember(path: Path, view: View) -> str | None:
    """Write `view` without its filter to `path`, atomically; return None, or an error message."""
    values = {name: getattr(view, name) for name in _REMEMBERED}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, msgspec.json.encode(values).decode())
    except OSError as error:
        return reason_of(error)
    return None
