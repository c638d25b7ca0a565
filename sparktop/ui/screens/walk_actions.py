"""Actions of the keys that move the selection, scroll, and open what is selected on a wall."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from sparktop.panels.board.layout import Drawn, PanelKey
from sparktop.panels.board.view import filtered_backends
from sparktop.ui.canvas import Canvas
from sparktop.ui.screens.balance_actions import BalanceActions

_LINED = frozenset({"prometheus", "members", "scraped", "machines"})
"""Kinds of panels whose lines can be selected while they are shown alone."""
_HEAD = 6
"""Rows of a wall that are not lines of a list, at least: a page is as many lines fewer than the screen."""


class _Step(Struct, frozen=True):
    """A step into a wall: what was opened, and what was shown and selected before."""

    opened: PanelKey
    zoomed: PanelKey | None
    selected: PanelKey | None
    first_row: int


class WalkActions(BalanceActions):
    """Moves the selection over panels and lines, and goes from a wall to a group, a server and back."""

    def __init__(self) -> None:
        """Start without anything to select."""
        super().__init__()
        self._drawn: Sequence[Drawn] = ()
        self._selectable: list[PanelKey] = []
        self._steps: list[_Step] = []
        self._is_wall = False
        """Whether the board shows what is watched directly as a wall."""

    @property
    def _on_lines(self) -> bool:
        """Whether the lines of a wall, or of an opened group, can be selected."""
        return self._is_wall if self.zoomed is None else self.zoomed.kind in _LINED

    @property
    def _has_lists(self) -> bool:
        """Whether a wall is shown whose lists of the worst can be shown in full."""
        return self._on_lines and (self.zoomed is None or self.zoomed.kind == "prometheus")

    @property
    def left_by_filter(self) -> frozenset[str] | None:
        """The names of the servers that are watched directly and that the filter leaves; None without one."""
        snapshot, words = self.shown, self.view.filter
        if snapshot is None or not words:
            return None
        if not self._is_wall:
            return frozenset(view.name for view in filtered_backends(snapshot.backends, words))
        from sparktop.panels.board.wall import direct_wall  # late: most boards have no wall

        groups = direct_wall(snapshot, words).groups
        return frozenset(one.server.name for group in groups for one in group.servers)

    def _wall_keys(self) -> list[tuple[str, str]]:
        """Return (key, text) pairs that the footer shows first on a wall."""
        shown = {key.name: key.shown for key in self.key_table}
        keys = [(shown["open"], "open")] if self._on_lines else []
        return [*keys, *([(shown["lists"], "lists")] if self._has_lists and shown["lists"] else [])]

    def action_select(self, step: int) -> None:
        """Move the selection over the panels in reading order: 1 forward, -1 back.

        If a panel that is higher than the screen is shown alone, scroll it instead.
        """
        if self.zoomed is not None and not self._on_lines:
            # A zoomed panel may be taller than the screen, and so may a table of processes.
            if self.zoomed.kind == "processes":
                self._first_row += step
                self._paint()
            elif self._board_height > self._room:
                self._scroll += 3 * step
                self._paint()
            return
        keys = self._selectable
        if not keys:
            return
        if self.selected in keys:
            self._select(keys[(keys.index(self.selected) + step) % len(keys)])
        else:
            self._select(keys[0 if step > 0 else -1])

    def _select(self, key: PanelKey) -> None:
        self.selected = key
        self._paint()
        for panel in self._drawn:
            if panel.key == key:
                top, bottom = panel.place.y, panel.place.y + panel.place.height
                scroll = min(max(self._scroll, bottom - self._room), top)
                if scroll != self._scroll:
                    self._scroll = scroll
                    self._paint()

    def action_page(self, screens: int) -> None:
        """Scroll the board, or the panel that is shown alone, by `screens` screens (negative: up).

        On a wall, move the selection by as many lines.
        """
        keys = self._selectable
        if self._on_lines and keys:
            at = keys.index(self.selected) if self.selected in keys else 0
            self._select(keys[max(0, min(len(keys) - 1, at + screens * max(1, self._room - _HEAD)))])
            return
        rows, before = screens * max(1, self._room - 2), (self._scroll, self._first_row)
        if self.zoomed is not None and self.zoomed.kind == "processes":
            self._first_row += rows
        else:
            self._scroll += rows
        self._paint()
        if before == (self._scroll, self._first_row):
            self.notify(f"the {'last' if screens > 0 else 'first'} row is on the screen already", timeout=2)

    def action_turn(self, step: int) -> None:
        """Change to the next (1) or previous (-1) group, or move the selection if no group is shown alone.

        On a wall, select the first line of the next or previous part: groups, machines, each list.
        """
        kinds = list(dict.fromkeys(key.kind for key in self._selectable)) if self._on_lines else []
        if len(kinds) < 2:  # noqa: PLR2004 - there is no other part
            super().action_turn(step)
            return
        kind = "" if self.selected is None else self.selected.kind
        at = (kinds.index(kind) + step) % len(kinds) if kind in kinds else 0
        self._select(next(key for key in self._selectable if key.kind == kinds[at]))

    def on_canvas_wheeled(self, message: Canvas.Wheeled) -> None:
        """Scroll the board if it is higher than the screen; scroll a list that is longer than its panel."""
        self._scroll = max(0, min(self._board_height - self._room, self._scroll + 3 * message.direction))
        self._first_row += 3 * message.direction
        if self._on_lines or any(panel.key.kind == "table" for panel in self._drawn):
            self.selected = None  # a selected row would pull the list back
        self._paint()

    def action_lists(self) -> None:
        """Show the next list of the worst on the wall; after the last one, the groups again."""
        from sparktop.analysis.state import Top  # late: most boards have no wall

        if not self._has_lists:
            self.notify("the lists are on the wall of many servers", timeout=2)
            return
        order = [None, *Top]
        self.selected, self._first_row = None, 0
        self.show_as(replace(self.view, top=order[(order.index(self.view.top) + 1) % len(order)]))

    def _drop_list(self) -> None:
        """Return from a list of the worst to the groups."""
        self.selected, self._first_row = None, 0
        self.show_as(replace(self.view, top=None))

    def action_open(self) -> None:
        """Open the selected line of a wall, or select its first; without a wall, open the panel."""
        if self._opens_line():
            return
        is_sweep = self.selected is not None and self.selected.kind == "sweep"
        if self._on_lines and (self.zoomed is not None or not is_sweep):
            self.action_select(1)  # what is not marked, perhaps not even on the screen, is not opened
            return
        super().action_open()

    def _opens_line(self) -> bool:
        """Open the selected line of a wall, if there is one, and return whether there is."""
        if not self._on_lines or self.selected not in self._selectable or self.selected is None:
            return False
        kind, name = self.selected.kind, self.selected.name
        opened = self._opened(kind, name)
        if opened is not None:
            self._steps.append(_Step(opened, self.zoomed, self.selected, self._first_row))
            self.zoomed, self.selected = opened, None
            self._scroll = self._first_row = 0
            self._paint()
        elif kind == "server" and self.zoomed is not None:
            self._read_closely(self._group_of(name))
        else:
            self.notify("what the Prometheus has about this machine stands in its line", timeout=2)
        return True

    def _opened(self, kind: str, name: str) -> PanelKey | None:
        """Return the panel that opens for a line of a wall; None for a server or machine of a Prometheus."""
        scraped = self.zoomed is not None and self.zoomed.kind in {"prometheus", "scraped"}
        if kind == "wall":
            return PanelKey("scraped" if scraped else "members", name)
        if kind == "machines":
            return PanelKey("machines", name)
        nodes = {view.name for view in self.shown.nodes} if self.shown is not None else set()
        if kind in {"backend", "node"}:
            return PanelKey(kind, name)
        if kind in {"server", "machine"}:
            return None
        if not scraped:
            is_node = kind == "slow clock" and name in nodes
            return PanelKey("node" if is_node else "backend", name)
        group = self._group_of(name)
        fleet = self.zoomed.name if self.zoomed else ""
        return PanelKey("machines", fleet) if group is None else PanelKey("scraped", group)

    def _group_of(self, server: str) -> str | None:
        """Return the group of a server that a Prometheus scrapes; None if there is no such server."""
        fleets = [view.fleet for view in self.shown.fleets] if self.shown is not None else []
        servers = (one for fleet in fleets if fleet is not None for one in fleet.servers)
        return next((one.group for one in servers if one.name == server), None)

    def _read_closely(self, group: str | None) -> None:
        """Begin to read a group of a Prometheus sample by sample, and show all panels."""
        begin = self.want_group
        self.notify(begin(group) if begin and group else "nothing is polled here", markup=False)
        self._steps.clear()
        self.zoomed = self.selected = None
        self._scroll = self._first_row = 0
        self._paint()

    def _steps_back(self) -> bool:
        """Return to the wall or group from which the panel shown alone was opened, if it was from one."""
        if not self._steps or self._steps[-1].opened != self.zoomed:
            self._steps.clear()
            return False
        step = self._steps.pop()
        self.zoomed, self.selected, self._first_row = step.zoomed, step.selected, step.first_row
        self._scroll = 0
        return True
