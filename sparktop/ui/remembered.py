"""What the overview keeps from one session to the next: visible boxes, preset, sort orders, graphs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from msgspec.structs import asdict, replace

from sparktop.files import BaseFolder, folder_of, write_whole
from sparktop.model.targets import ViewSettings
from sparktop.model.text import reason_of
from sparktop.panels.board.layout import Boxes
from sparktop.panels.board.view import WINDOWS_S, GraphStyle, Preset, Sort, View
from sparktop.panels.server.table import ColumnOrder

Remembered = TypeVar("Remembered", Preset, Sort, GraphStyle, ColumnOrder)


def state_file(env: Mapping[str, str]) -> Path:
    """Return the path of the state file `view.json`, which is in the same folder as the log.

    The folder is below `$XDG_STATE_HOME`.
    """
    return folder_of(env, BaseFolder.STATE) / "view.json"


def recall(path: Path) -> View:
    """Read the stored view from `path`; anything missing, unreadable or unknown has its default value."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return View()
    if not isinstance(data, dict):
        return View()
    stored = data.get("boxes")
    stored = stored if isinstance(stored, dict) else {}
    boxes = Boxes(**{name: stored[name] for name in asdict(Boxes()) if isinstance(stored.get(name), bool)})
    all_hidden = not any(asdict(boxes).values())
    return View(
        preset=_enum_member(Preset, data.get("preset"), Preset.WATCH),
        boxes=Boxes() if all_hidden else boxes,
        sort=_enum_member(Sort, data.get("sort"), Sort.CONFIG),
        graphs=_enum_member(GraphStyle, data.get("graphs"), GraphStyle.BRAILLE),
        window_s=next((window_s for window_s in WINDOWS_S if window_s == data.get("window_s")), WINDOWS_S[0]),
        columns=_enum_member(ColumnOrder, data.get("columns"), ColumnOrder.LOAD),
    )


def with_configured(view: View, settings: ViewSettings) -> View:
    """Return `view` with what the configuration file sets, which holds at each start."""
    return replace(
        view,
        graphs=_enum_member(GraphStyle, settings.graphs, view.graphs),
        window_s=view.window_s if settings.window_s is None else settings.window_s,
        columns=_enum_member(ColumnOrder, settings.columns, view.columns),
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


def _enum_member(kind: type[Remembered], value: object, default: Remembered) -> Remembered:
    return next((member for member in kind if member.value == value), default)


def remember(path: Path, view: View) -> str | None:
    """Write `view` without its filter to `path`, atomically; return None, or an error message."""
    values = {
        "boxes": asdict(view.boxes),
        "preset": view.preset.value,
        "sort": view.sort.value,
        "graphs": view.graphs.value,
        "window_s": view.window_s,
        "columns": view.columns.value,
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(values))
    except OSError as error:
        return reason_of(error)
    return None
