"""Draws lists of nodes, groups and backends: a frame with a line, or a few rows, for each entry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec import Struct

from sparktop.model.balance import Balance
from sparktop.model.snapshot import BackendView, NodeView, Snapshot
from sparktop.panels.backend.panel import GroupScale
from sparktop.panels.backend.table import ColumnOrder, Table, entry_names, short_entry
from sparktop.panels.board.layout import Place, entry_rows
from sparktop.panels.node.table import line_shape, list_shape, node_entry, node_heading, short_node
from sparktop.panels.parts.frame import frame_role, framed, name_tab
from sparktop.panels.parts.graph import TimeWindow, with_time_axis
from sparktop.panels.parts.rows import Row, Run, fit_row, merged

_WIDE_ROWS = 3
"""Most rows of an entry of a list with many columns; in higher entries, graphs use the cells better."""
_View = TypeVar("_View", NodeView, BackendView)


class Listed(Struct, frozen=True):
    """A drawn list: its rows with the frame, and the place of each visible entry."""

    rows: list[Row]
    entries: list[Place]


def node_list(place: Place, views: Sequence[NodeView], window: TimeWindow, selected: str | None) -> Listed:
    """Draw the list of nodes; `selected` is the name of the selected node."""
    each, heading = entry_rows(place, len(views))
    width, title = place.width, name_tab("node", "", "nodes")
    if place.columns > 1:
        short = line_shape(views, (place.width - 2) // place.columns - 1)
        entries = _short(
            place, views, lambda view, _: short_node(view, short, selected=view.name == selected)
        )
        return _in_frame(place, len(views), entries, 1, None, kind="node", title=title)
    shape = list_shape(views, width, each)
    drawn = [node_entry(view, shape, width, each, window, selected=view.name == selected) for view in views]
    rows = [row for entry in drawn for row in entry]
    return _in_frame(
        place,
        len(views),
        rows,
        each,
        node_heading(shape, width) if heading else None,
        kind="node",
        title=title,
    )


def group_list(place: Place, snapshot: Snapshot, selected: str | None) -> Listed:
    """Draw the list of groups with their verdicts; `selected` is the name of the selected group."""
    from sparktop.panels.balance.band import group_entry  # late: no first picture has a balance

    groups = listed_groups(place, snapshot)
    rows = [group_entry(one, place.width, selected=one.group == selected) for one in groups]
    count = sum(one.within is None for one in snapshot.balance)
    return _in_frame(
        place,
        len(rows),
        rows,
        1,
        None,
        kind="balance",
        title=name_tab("balance", ""),
        footnote=[(f" worst {len(groups)} of {count} groups ", "muted")] if len(groups) < count else (),
    )


def listed_groups(place: Place, snapshot: Snapshot) -> list[Balance]:
    """Return the groups that the list at `place` shows: all, or the worst where not all fit."""
    groups = [one for one in snapshot.balance if one.within is None]
    room = max(1, place.height - 2)
    if len(groups) <= room:
        return groups
    return sorted(groups, key=lambda one: (not one.bad, not one.word.bad))[:room]


def backend_list(
    place: Place,
    snapshot: Snapshot,
    window: TimeWindow,
    scale: Callable[[Sequence[BackendView]], GroupScale],
    *,
    first: int,
    order: str = "",
    wide: bool = False,
    verdict: bool = False,
    selected: str | None = None,
    columns: ColumnOrder = ColumnOrder.LOAD,
) -> Listed:
    """Draw the list of backends from the backend with the index `first` on; further ones may not fit.

    `order` names the sort order, "" for the configured one. With `wide`, values matter more than graphs.
    With `verdict`, the frame has the worst verdict of all groups. `selected` is a backend's name.
    `columns` says which columns come first. `scale` returns the scale of the graphs of the backends shown.
    """
    views = snapshot.backends
    each, heading = entry_rows(place, len(views))
    wide = wide and each <= _WIDE_ROWS
    heading = heading or wide
    shown = views[first : first + visible(place, len(views), wide=wide)]
    graphs = place.columns == 1 or heading
    names = tuple(view.name for view in views)
    table = Table(place.width, window, scale(shown if graphs else ()), wide, columns, names, each)
    if place.columns > 1:
        rows = _short_entries(place, shown, names, selected)
    else:
        rows = [row for view in shown for row in table.rows(view, each, selected=view.name == selected)]
    some: Row = [(f" {first + 1}–{first + len(shown)} of {len(views)} ", "muted")]
    some = some if len(shown) < len(views) else []
    listed = _in_frame(
        place,
        len(shown),
        rows,
        each,
        table.heading(order) if heading else None,
        kind="backend",
        title=name_tab("backend", "", "backends"),
        status=_worst(snapshot, place.width - 24) if verdict else [],
        footnote=some,
    )
    entries = [Place("row", first + at.index, at.x, at.y, at.width, at.height) for at in listed.entries]
    if wide or place.columns > 1:
        return Listed(listed.rows, entries)
    rows = with_time_axis(listed.rows, place.width, window, frame_role("backend"), some)
    return Listed(rows, entries)


def _short_entries(
    place: Place, shown: Sequence[BackendView], names: tuple[str, ...], selected: str | None
) -> list[Row]:
    """Return the rows of a list of backends with several columns; `names` has those of all backends."""
    fitted = entry_names(names, (place.width - 2) // place.columns)
    return _short(
        place,
        shown,
        lambda view, cells: short_entry(view, fitted[view.name], cells, selected=view.name == selected),
    )


def _worst(snapshot: Snapshot, width: int) -> Row:
    """Return the worst verdict of all groups in `width` cells or fewer; empty without a group."""
    if not snapshot.balance:
        return []
    from sparktop.panels.balance.band import edge_verdict  # late: no first picture has a balance

    return edge_verdict(snapshot.balance, width)


def visible(place: Place, count: int, *, wide: bool) -> int:
    """Return how many of `count` backends the list at `place` shows; it always has a heading if `wide`."""
    each, heading = entry_rows(place, count)
    lines = (place.height - 2 - int(heading or wide)) // each
    return max(1, lines * place.columns)


def _short(place: Place, views: Sequence[_View], draw: Callable[[_View, int], Row]) -> list[Row]:
    """Return the rows of a list with several columns; `draw` returns an entry of a given width in cells."""
    cells = (place.width - 2) // place.columns
    entries = [draw(view, cells) for view in views]
    lines = [entries[at : at + place.columns] for at in range(0, len(entries), place.columns)]
    return [fit_row([run for entry in line for run in entry], place.width - 2) for line in lines]


def _in_frame(
    place: Place,
    count: int,
    rows: Sequence[Row],
    each: int,
    heading: Row | None,
    *,
    kind: str,
    title: Row,
    status: Sequence[Run] = (),
    footnote: Sequence[Run] = (),
) -> Listed:
    """Return a list of `count` entries in its frame; `rows` has `each` rows of text for every entry."""
    inside = [*([] if heading is None else [heading]), *rows]
    framed_rows = framed(
        inside,
        place.width,
        place.height,
        role=frame_role(kind),
        title=title,
        status=status,
        footnote=footnote,
        fitted=True,
    )
    first = place.y + 1 + (heading is not None)
    cells = (place.width - 2) // place.columns
    entries: list[Place] = []
    for index in range(count):
        line, column = divmod(index, place.columns)
        entries.append(Place("row", index, place.x + 1 + column * cells, first + line * each, cells, each))
    return Listed([merged(row) for row in framed_rows], entries)
