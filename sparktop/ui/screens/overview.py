"""The overview screen: header, board of panels, footer, and the actions of its keys.

A panel that is shown alone is called zoomed. The band is a sweep's panel, which is above all others. A wall
is the board where there are too many servers for a panel each: groups, and lists of the worst.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec.structs import replace
from textual import events
from textual.message import Message
from textual.widgets import Input

from sparktop.analysis.summary import verdict
from sparktop.analysis.wall import wall_of
from sparktop.config.keys import KEYS, Key
from sparktop.errors import SparktopError, UsageError
from sparktop.model.balance import BalanceWord, balances_read_first
from sparktop.model.instant import Countdown
from sparktop.model.snapshot import BackendView, Snapshot
from sparktop.model.text import clean
from sparktop.panels.board.bars import event_words, header_row, scroll_keys, time_bar_row, time_of
from sparktop.panels.board.layout import Boxes, Drawn, PanelKey
from sparktop.panels.board.scene import Scene, flatten, is_wall, is_worst_first
from sparktop.panels.board.view import Arrangement, Preset, Sort, View, filtered_backends
from sparktop.panels.parts.text import Row
from sparktop.ui.canvas import Canvas
from sparktop.ui.keys import with_moved_keys
from sparktop.ui.rewind import PastTimeline, Rewind
from sparktop.ui.screens.canvas_screen import CanvasScreen
from sparktop.ui.styles import RoleStyles

if TYPE_CHECKING:  # a start without a sweep or a wall needs none of it
    from sparktop.model.sweep import SweepView
    from sparktop.moments.moment import Moment
    from sparktop.panels.board.wall import WallOrders
    from sparktop.ui.screens.base import Desk

_BOXES = {"nodes": "nodes", "backends": "backends", "events-box": "events", "self": "self_cost"}
"""Field of `Boxes` by the name of the key that shows or hides it."""
_NO_BOXES = "this view is one backend alone, without boxes: {view} shows the next view, {events} the events"
_TIME_KEYS = {
    "freeze": "live",
    "play": "play",
    "step-back": "10 s back",
    "step-on": "on",
    "event-back": "event",
    "event-on": "next",
    "events": "explain",
    "slower": "faster",
    "go": "time",
}
"""Text in the row of keys, by the names of those that come first while a past moment is shown."""
_FOOTER_ACTIONS = {"↓": "select(1)", "↑": "select(-1)", "esc": "back"}
_NOTICE_ROWS = 3
"""Rows of the longest notice."""
_FILTER_WORDS = "filter: words in name, model, URL, state … esc drops it"
_LINED = frozenset({"prometheus", "members", "scraped", "machines"})
"""Kinds of panels whose lines can be selected while they are shown alone."""
_HEAD = 6
"""Rows of a wall that are not lines of a list, at least: a page is as many lines fewer than the screen."""
_EVENTS, _HAPPENED, _COMPARED = (PanelKey(kind, "") for kind in ("events", "happened", "compared"))
SWEEP = PanelKey("sweep", "")
"""Identifies the sweep's panel on the board."""
HEADER = 1
"""Rows above the board."""


_Step = tuple[PanelKey, PanelKey | None, PanelKey | None, int]
"""What was opened, and what was shown alone before, with the selected line of a wall and its first line."""


class OverviewScreen(CanvasScreen):
    """The main screen, which shows all panels on one board."""

    footer_actions = _FOOTER_ACTIONS
    ask_ranks: Callable[[str], str] | None = None
    """Begins to ask about the ranks of a backend and returns a message; None if nothing is polled here."""
    want_group: Callable[[str], str] | None = None
    """Begins to read a group of a Prometheus sample by sample, and returns a message; None as above."""
    look_closer: Callable[[str], str] | None = None
    """Begins to poll the servers of a group directly, and returns a message; None as above."""

    read_around: Callable[[datetime], Callable[[], Moment | None]] | None = None
    """Returns what reads the minutes around a past moment, in a thread; None where none is kept."""

    class ViewChanged(Message):
        """Posted when the user changes the view: preset, boxes, sort orders or filters."""

        def __init__(self, view: View) -> None:
            """Store the new view."""
            super().__init__()
            self.view = view

    def __init__(
        self,
        styles: RoleStyles,
        take_snapshot: Callable[[], Snapshot],
        *,
        view: View | None = None,
        keys: Sequence[Key] = KEYS,
        show_processes: Callable[[tuple[str, ...]], None] | None = None,
    ) -> None:
        """Draw what `take_snapshot` returns with the settings in `view`; `keys` is the key table.

        `show_processes` is called with the names of the nodes whose process table is visible, each time these
        names change.
        """
        super().__init__(styles, keys)
        self._take_snapshot = take_snapshot
        self._show_processes = show_processes
        self._processes_of: tuple[str, ...] = ()
        self.shown: Snapshot | None = None
        """The snapshot on screen; None before the first."""
        self.view = view or View()
        self.selected: PanelKey | None = None
        self.zoomed: PanelKey | None = None
        self.coarse = 1
        """Number of poll intervals per dot column of the graphs."""
        self.unavailable: frozenset[str] = frozenset()
        """Names of the keys that cannot help in this program: the row of keys leaves them out."""
        self.notice: str | None = None
        """Text for the header: why polls or drawings are slower than requested; None if they are not."""
        self.timeline: PastTimeline = Rewind()
        """Chooses the moment on the screen."""
        self.desk: Desk
        """Starts and stops sweeps."""
        self._band: SweepView | Countdown | None = None
        self._arrangement = Arrangement()
        self._orders: WallOrders | None = None
        self._drawn: Sequence[Drawn] = ()
        """The panels on the screen."""
        self._selectable: list[PanelKey] = []
        self._scroll = self._first_row = self._board_height = 0
        self._room = 0
        """Rows of the screen for the board."""
        self._is_wall = False
        """Whether the board shows what is watched directly as a wall."""
        self._steps: list[_Step] = []
        """Steps from the board to the panel that is shown alone, the newest last."""
        self._bar_cells = (0, 0)
        """First cell and number of cells of the time bar on the screen."""
        self._happened: tuple[datetime, Moment | str | None] | None = None
        """The past moment whose minutes were read last, and these; why they could not be."""
        self._reading_since: float | None = None
        """Monotonic time since when minutes are read; None while none are."""

    def redraw(self) -> None:
        """Draw a new snapshot, or the past moment that the timeline chooses."""
        present = self._take_snapshot()
        past = self.timeline.picture()
        if past is None:
            self.shown, self._band = present, self.desk.band()
        else:
            self.shown, self._band = past.snapshot, past.sweep
        self._read_happened()
        self._paint()

    def _paint(self) -> None:
        if self.shown is None:
            return
        if self.is_too_small:
            self._drawn = []
            self._report_processes(())
        super()._paint()

    def _rows(self, width: int, height: int) -> list[Row]:
        snapshot = self.shown
        if snapshot is None:
            return []
        arranged, bar = snapshot, self._bar_rows(width)
        self._room = room = height - HEADER - len(bar)
        self._is_wall = is_wall(snapshot, width, room, self.view)
        if self._orders is None and (self._is_wall or snapshot.fleets):
            from sparktop.panels.board.wall import WallOrders  # late: most boards have no wall

            self._orders = WallOrders()
        # A wall counts what its filter hides, and has an order of its own.
        if not self._is_wall:
            worst_first = is_worst_first(snapshot, width, room, self.view)
            arranged = self._arrangement.of(snapshot, self.view, self.selected, worst_first=worst_first)
        if self.zoomed == _HAPPENED and not self.frozen:
            self.zoomed = _EVENTS
        zoomed = self._zoomed_panel(arranged)
        band = self._band if self.zoomed is None else None  # the header still shows a sweep's progress
        scene = Scene(
            # A zoomed panel names others, such as a backend's nodes, which the filter must not hide.
            arranged if zoomed is None else snapshot,
            width,
            room,
            self.view,
            selected=self.selected,
            zoomed=zoomed,
            first_row=self._first_row,
            coarse=self.coarse,
            sweep=band,
            orders=self._orders,
            page=self._happened_rows,
            is_past=self.frozen,
        )
        self._scroll = max(0, min(self._scroll, scene.layout.height - room))
        self._drawn = scene.draw(self._scroll, self._scroll + room)
        self._selectable = scene.keys()
        if self.view.preset is Preset.ONE and self.zoomed is None:
            self._selectable = [PanelKey("backend", view.name) for view in arranged.backends]
            self._selectable[:0] = [SWEEP] if band is not None else []
        self._first_row = scene.first_row
        self._board_height = scene.layout.height
        self._report_processes(scene.process_tables(self._scroll, self._scroll + room))
        board = flatten(self._drawn, width, self._board_height)[self._scroll : self._scroll + room]
        header = header_row(
            snapshot,
            width,
            moment=self.timeline.word() if self.frozen else None,
            notice=self.notice,
            sweep=self._sweep_word,
        )
        return with_moved_keys([header, *board], self.key_table) + bar

    def _report_processes(self, names: tuple[str, ...]) -> None:
        if names != self._processes_of:
            self._processes_of = names
            if self._show_processes is not None:
                self._show_processes(names)

    def _zoomed_panel(self, snapshot: Snapshot) -> PanelKey | None:
        """Return the panel to show alone; None to show all panels.

        This is the panel that the user zoomed, or with the preset "one backend" the selected or first
        backend.
        """
        if self.zoomed is not None or self.view.preset is not Preset.ONE or not snapshot.backends:
            return self.zoomed
        names = [view.name for view in snapshot.backends]
        chosen = self.selected.name if self.selected and self.selected.kind == "backend" else names[0]
        return PanelKey("backend", chosen if chosen in names else names[0])

    @property
    def _shows_one_backend(self) -> bool:
        """Whether the board is one backend alone, without boxes, as with the preset "one backend"."""
        snapshot = self.shown
        return self.view.preset is Preset.ONE and snapshot is not None and bool(snapshot.backends)

    @property
    def _arrows_change_backend(self) -> bool:
        """Whether arrows show the next of several backends; only pages scroll then."""
        return self.zoomed is None and self._shows_one_backend and bool(self._selectable[1:])

    def _footer(self) -> list[tuple[str, str]]:
        table = self.key_table
        if self.zoomed is not None and self.zoomed.kind in {"node", "processes"}:  # most useful there
            table = tuple(sorted(table, key=lambda key: key.name != "processes"))
        # The frame of a panel that is shown has the key that hides it.
        framed = {
            name for name, box in _BOXES.items() if self._shows_one_backend or getattr(self.view.boxes, box)
        }
        absent = framed | self.unavailable
        keys = [
            (key.shown, key.footer)
            for key in table
            if key.footer and key.name not in absent and self._is_useful(key.name)
        ]
        page_keys = [*self._time_keys(), *self._sweep_keys(), *self._group_keys(), *self._wall_keys()]
        listed = {shown for shown, _ in page_keys}
        keys = [*page_keys, *(pair for pair in keys if pair[0] not in listed)]
        if self.view.filter and (self.zoomed is None or self._has_selectable_lines):
            keys = [("esc", f"drops filter: {clean(self.view.filter, 20)}"), *keys]
        below = self._board_height - self._room - self._scroll
        down, up = "↓", "↑"
        if self._arrows_change_backend:
            down, up = self.key_names["page-down"], self.key_names["page-up"]
        return [*scroll_keys(self._scroll, below, down, up), *keys]

    def _is_useful(self, name: str) -> bool:
        """Return whether the key `name` can do something with what is on the screen."""
        shown = self.shown
        servers = 0 if shown is None else len(shown.backends) + len(shown.fleets)
        nodes = 0 if shown is None else len(shown.nodes)
        match name:
            case "balance" | "why":
                return shown is None or bool(shown.balance)
            case "processes" | "compared":
                return nodes >= (2 if name == "compared" else 1)
            case "sort":
                return max(servers, nodes) > 1
            case "filter":
                return servers + nodes > 0
            case "sweep" | "capacity" | "sweep-editor":
                return not self.frozen and (shown is None or bool(shown.backends) or bool(shown.routers))
            case _:
                return True

    # The view

    def show_as(self, view: View) -> None:
        """Draw with the view `view` (preset, boxes, sort orders, filters) and post `ViewChanged`."""
        self.view = view
        self._paint()
        self.post_message(self.ViewChanged(view))

    def action_box(self, box: str) -> None:
        """Show or hide the box with the field name `box` of `Boxes`; the last visible box stays."""
        if self._shows_one_backend:
            self.notify(_NO_BOXES.format(view=self.key_names["view"], events=self.key_names["events"]))
            return
        boxes = replace(self.view.boxes, **{box: not getattr(self.view.boxes, box)})
        if boxes == Boxes(nodes=False, backends=False, events=False, self_cost=False):
            self.notify("this is the last box shown: show another one first (1 to 4)", timeout=3)
            return
        self.zoomed = None
        self.show_as(replace(self.view, boxes=boxes))

    def action_next_view(self) -> None:
        """Change to the next preset of the view."""
        presets = list(Preset)
        if self._is_wall and self.view.preset in {Preset.WATCH, Preset.WALL}:
            presets.remove(Preset.WATCH if self.view.preset is Preset.WALL else Preset.WALL)  # both are it
        self.zoomed, self._scroll = None, 0
        preset = presets[(presets.index(self.view.preset) + 1) % len(presets)]
        self.show_as(replace(self.view, preset=preset, top=None))

    def action_next_sort(self) -> None:
        """Change to the next sort order of the board."""
        sorts = list(Sort)
        self.show_as(replace(self.view, sort=sorts[(sorts.index(self.view.sort) + 1) % len(sorts)]))
        self.notify(f"sorted: {self.view.sort.value}", timeout=2)

    def action_more_keys(self) -> None:
        """Show the next keys in the row at the bottom; after the last ones the first again."""
        self._key_row.page += 1
        self._paint()

    def action_zoom(self) -> None:
        """Show the selected panel alone, else what the header is about; or a selected sweep's full screen.

        If a panel is shown alone already, show all panels again.
        """
        if self.zoomed is not None:
            self._leave_panel()
        elif self._open_line() or self._open_sweep():
            return
        elif self._drawn:
            backends = (panel.key for panel in self._drawn if panel.key.kind == "backend")
            in_header = self.in_header("backend") or self.in_header("node")
            fallback = in_header or next(backends, self._drawn[0].key)
            chosen = self.selected or fallback
            if chosen.kind == "empty":  # alone it looks like the board
                return
            self.zoomed = self.selected = chosen
        self._scroll = 0
        self._paint()

    def action_back(self) -> None:
        """Go back by one step.

        The step is the first of these that applies: close an input line, cancel a countdown, drop the filter
        of what is shown, leave a list of a wall, leave the panel shown alone, drop the filter, remove a
        finished sweep, drop the selection.
        """
        if self.asked == "time":
            self.close_line()
        elif self.asked == "filter":
            self.close_line()
            self._filter_by("")
        elif self._countdown:
            self.desk.call_off()
            return
        elif self._has_selectable_lines and self.view.filter:
            self._filter_by("")
        elif self._has_lists and self.view.top:
            self.selected, self._first_row = None, 0
            self.show_as(replace(self.view, top=None))
        elif self.zoomed is not None:
            self._leave_panel()
        elif self.view.filter:
            self.show_as(replace(self.view, filter=""))
        elif self._dismiss_sweep():
            return
        else:
            self.selected = None
        self._paint()

    def _leave_panel(self) -> None:
        """Return from the panel shown alone to what it was opened from; of a group, to that of now."""
        left, self.zoomed, self._scroll, self._first_row = self.zoomed, None, 0, 0
        if left is None or not self._steps or self._steps[-1][0].kind != left.kind:
            self._steps.clear()
            return
        _, self.zoomed, selected, self._first_row = self._steps.pop()
        self.selected = selected or self.selected
        if self.zoomed is not None and self.zoomed.kind == "balance" and left.kind == "evidence":
            self.zoomed = PanelKey("balance", left.name)

    def _show_alone(self, opened: PanelKey, selected: PanelKey | None = None) -> None:
        """Show a panel alone; `_leave_panel` returns to what is shown now, with the line `selected`."""
        if self.zoomed is None:
            self._steps.clear()
        self._steps.append((opened, self.zoomed, selected, self._first_row))
        self.zoomed = opened
        self._scroll = self._first_row = 0

    def action_processes(self) -> None:
        """Show the processes of the selected node, else of the header's, else of the first; or return."""
        if self.zoomed is not None and self.zoomed.kind == "processes":
            self._leave_panel()
        else:
            names = [view.name for view in self.shown.nodes] if self.shown is not None else []
            keys = (self.zoomed, self.selected, self.in_header("node"))
            chosen = next((key.name for key in keys if key and key.kind == "node"), None)
            if not names:
                self.notify("no node to show the processes of", timeout=2)
                return
            self._show_alone(PanelKey("processes", chosen if chosen in names else names[0]))
        self._paint()

    def action_events(self) -> None:
        """Show alerts and events alone, of a past moment first what happened around it; and back."""
        shown = self.zoomed
        if shown in {_HAPPENED, _EVENTS}:
            self._leave_panel()
        if shown != _EVENTS:
            is_first = shown != _HAPPENED and self.frozen and self.read_around is not None
            self._show_alone(_HAPPENED if is_first else _EVENTS)
        self._paint()
        self._read_happened()

    def _happened_rows(self, width: int, height: int) -> list[Row]:
        """Draw what happened around the past moment on the screen, or that it is being read."""
        from sparktop.moments.page import happened_frame, happened_screen  # late: the present needs none

        at, moment = self._happened or (None, None)
        if at is None or moment is None or isinstance(moment, str):
            text = moment if isinstance(moment, str) else "reading the minutes around this moment"
            if self.timeline.is_playing:
                text = "what happened around a moment is read once this is paused"
            elif self._reading_since is not None:  # a long recording takes many seconds
                text = f"{text}: {time.monotonic() - self._reading_since:.0f} s"
            return happened_frame([[(f" {text}", "muted")]], width, height)
        return happened_screen(moment, at, width, height)

    def _read_happened(self) -> None:
        """Read the minutes around the past moment on the screen, unless it goes on or they are being read."""
        if self.zoomed != _HAPPENED or self.shown is None or self.read_around is None:
            return
        at = self.shown.taken_at
        is_read = self._happened is not None and self._happened[0] == at
        if not is_read and self._reading_since is None and not self.timeline.is_playing:
            self._reading_since = time.monotonic()
            work = self._keep_happened(at, self.read_around(at))
            self.run_worker(work, group="happened", exit_on_error=False)

    async def _keep_happened(self, at: datetime, read: Callable[[], Moment | None]) -> None:
        repaint_timer = self.set_interval(1.0, self._paint)
        try:
            moment: Moment | str | None = await asyncio.to_thread(read)
        except (SparktopError, OSError) as error:
            moment = clean(error)
        finally:
            repaint_timer.stop()
        self._happened, self._reading_since = (at, moment), None
        self._paint()
        self._read_happened()  # the moment may be another one by now

    def action_compared(self) -> None:
        """Show the machines compared alone; if they are shown alone already, what was shown before."""
        if self.zoomed == _COMPARED:
            self._leave_panel()
        else:
            self._show_alone(_COMPARED)
        self._paint()

    def in_header(self, kind: str) -> PanelKey | None:
        """Return the "node" or "backend" that the header's words are about; None if it is neither."""
        if self.shown is None:
            return None
        views = self.shown.nodes if kind == "node" else self.shown.backends
        worst = verdict(self.shown)
        # A server is often named as its machine: the id of the alert says which of both is meant.
        about = worst.about.partition(":")[0]
        is_about_kind = about == kind or about not in {"node", "backend"}
        is_shown = worst.subject in {view.name for view in views}
        return PanelKey(kind, worst.subject) if is_about_kind and is_shown else None

    def _action_at(self, x: int, y: int) -> str | None:
        """Return the action of a clicked key; the panel in whose frame it stands is selected."""
        action = super()._action_at(x, y)
        if action is not None:
            self.selected = self._panel_at(x, y) or self.selected
        return action

    async def _point(self, x: int, y: int) -> None:
        """Select the clicked panel, or zoom it if it is selected.

        A click on the header shows alerts and events, one on the number of servers in a state filters by it.
        """
        panel = self._panel_at(x, y)
        if y == 0:
            self.action_events()
        elif y > self._room:
            (first, cells), bar = self._bar_cells, self.timeline.bar()
            if bar is not None and first <= x < first + cells:
                self.timeline.go(time_of(bar, x - first, cells))
                self.redraw()
        elif panel is not None and panel.kind == "state":  # its word is added to the filter, or removed
            words = f" {self.view.filter}".removesuffix(f" {panel.name}").lstrip()
            self._first_row = self._scroll = 0
            self._filter_by(words if words != self.view.filter else f"{words} {panel.name}".lstrip())
        elif panel is not None and self.selected == panel:
            if not self._open_line():
                self.action_zoom()
        elif panel is not None:
            self.selected = panel
            self._paint()

    def _panel_at(self, x: int, y: int) -> PanelKey | None:
        """Return the panel, or row of a table, at a cell of the screen; None outside the board."""
        for panel in reversed(self._drawn):  # the rows of a table come after the table itself
            if HEADER <= y <= self._room and panel.place.holds(x, y - HEADER + self._scroll):
                return panel.key
        return None

    # Selection and walls

    @property
    def _has_selectable_lines(self) -> bool:
        """Whether the lines of a wall, or of an opened group, can be selected."""
        return self._is_wall if self.zoomed is None else self.zoomed.kind in _LINED

    @property
    def _has_lists(self) -> bool:
        """Whether a wall is shown whose lists of the worst can be shown in full."""
        return self._has_selectable_lines and (self.zoomed is None or self.zoomed.kind == "prometheus")

    @property
    def left_by_filter(self) -> frozenset[str] | None:
        """The names of the servers that are watched directly and that the filter leaves; None without one."""
        snapshot, words = self.shown, self.view.filter
        if snapshot is None or not words:
            return None
        if not self._is_wall:
            return frozenset(view.name for view in filtered_backends(snapshot.backends, words))
        groups = wall_of(snapshot, words).groups
        return frozenset(server.server.name for group in groups for server in group.servers)

    def _wall_keys(self) -> list[tuple[str, str]]:
        """Return (key, text) pairs that the footer shows first on a wall."""
        offered = {"open": self._has_selectable_lines, "lists": self._has_lists}
        names = [name for name, is_offered in offered.items() if is_offered]
        return [(self.key_names[name], name) for name in names if self.key_names[name]]

    def action_select(self, step: int) -> None:
        """Move the selection over the panels in reading order: 1 forward, -1 back.

        If a panel that is higher than the screen is shown alone, scroll it instead; in the view of one
        backend only where there is no other to show next.
        """
        is_alone = self.zoomed is not None or (self._shows_one_backend and not self._arrows_change_backend)
        if is_alone and not self._has_selectable_lines:
            # A zoomed panel may be taller than the screen, and so may a table of processes.
            if self.zoomed is not None and self.zoomed.kind == "processes":
                self._first_row += step
                self._paint()
            elif self._board_height > self._room:
                self._scroll += 3 * step
                self._paint()
            return
        keys = self._selectable
        if not keys:
            return
        current = self.selected
        if current not in keys and self._shows_one_backend:
            current = next((panel.key for panel in self._drawn if panel.key.kind == "backend"), None)
        if current in keys:
            self._select(keys[(keys.index(current) + step) % len(keys)])
        else:
            self._select(keys[0 if step > 0 else -1])

    def _select(self, key: PanelKey) -> None:
        self.selected = key
        if self._arrows_change_backend:  # the next one is shown from its top, below a sweep's band
            self._scroll = 0
            self._paint()
            return
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
        if self._has_selectable_lines and keys:
            index = keys.index(self.selected) if self.selected in keys else 0
            self._select(keys[max(0, min(len(keys) - 1, index + screens * max(1, self._room - _HEAD)))])
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
        groups = [balance.group for balance in self.shown.balance] if self.shown is not None else []
        kinds = (
            list(dict.fromkeys(key.kind for key in self._selectable)) if self._has_selectable_lines else []
        )
        if len(kinds) > 1:
            kind = "" if self.selected is None else self.selected.kind
            index = (kinds.index(kind) + step) % len(kinds) if kind in kinds else 0
            self._select(next(key for key in self._selectable if key.kind == kinds[index]))
        elif self.zoomed is not None and self._is_group_alone and self.zoomed.name in groups:
            name = groups[(groups.index(self.zoomed.name) + step) % len(groups)]
            self.zoomed = PanelKey(self.zoomed.kind, name)
            self.selected = PanelKey("balance", name)
            self._scroll = 0
            self._paint()
        else:
            self.action_select(step)

    def on_canvas_wheeled(self, message: Canvas.Wheeled) -> None:
        """Scroll the board if it is higher than the screen; scroll a list that is longer than its panel."""
        self._scroll = max(0, min(self._board_height - self._room, self._scroll + 3 * message.direction))
        self._first_row += 3 * message.direction
        if self._has_selectable_lines or any(panel.key.kind == "table" for panel in self._drawn):
            self.selected = None  # a selected row would pull the list back
        self._paint()

    def action_lists(self) -> None:
        """Show the next list of the worst on the wall; after the last one, the groups again."""
        from sparktop.analysis.wall import Top  # late: most boards have no wall

        if not self._has_lists:
            self.notify("l is for the wall of many servers only", timeout=2)
            return
        order = [None, *Top]
        self.selected, self._first_row = None, 0
        self.show_as(replace(self.view, top=order[(order.index(self.view.top) + 1) % len(order)]))

    def action_open(self) -> None:
        """Open what is selected, such as the line of a wall; on a balance, the evidence for its verdict.

        On a wall without a selection, select its first line. During a sweep's countdown, say how to stop it.
        If the samples of a group are too seldom for a verdict on swings, poll its servers directly instead.
        """
        if self._open_line():
            return
        is_sweep = self.selected == SWEEP
        if self._has_selectable_lines and (self.zoomed is not None or not is_sweep):
            self.action_select(1)  # what is not marked, perhaps not even on the screen, is not opened
        elif self._countdown:
            self._say_how_to_stop()
        elif self.zoomed is None and is_sweep and self._open_sweep():
            return
        elif self._is_group_alone:
            group = self._slowly_sampled_group()
            if group is None:
                self.action_why()
            else:
                message = self.look_closer(group) if self.look_closer else "nothing is polled here"
                self.notify(message, markup=False)
        else:
            self.action_zoom()

    def _open_line(self) -> bool:
        """Open the selected line of a wall, if there is one, and return whether there is."""
        if not self._has_selectable_lines or self.selected not in self._selectable or self.selected is None:
            return False
        kind, name = self.selected.kind, self.selected.name
        opened = self._panel_of_line(kind, name)
        if opened is not None:
            self._show_alone(opened, self.selected)
            self.selected = None
            self._paint()
        elif kind == "server" and self.zoomed is not None:
            begin, group = self.want_group, self._group_of(name)
            self.notify(begin(group) if begin and group else "nothing is polled here", markup=False)
            self._steps.clear()
            self.zoomed = self.selected = None
            self._scroll = self._first_row = 0
            self._paint()
        else:
            self.notify("what the Prometheus has about this machine stands in its line", timeout=2)
        return True

    def _panel_of_line(self, kind: str, name: str) -> PanelKey | None:
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
        servers = (server for fleet in fleets if fleet is not None for server in fleet.servers)
        return next((candidate.group for candidate in servers if candidate.name == server), None)

    # Groups and ranks

    def _group_keys(self) -> list[tuple[str, str]]:
        """Return (key, text) pairs that the footer shows first while a group is shown alone.

        The list is empty while no group is shown alone.
        """
        if self.zoomed is None or not self._is_group_alone:
            return []
        is_verdict = self.zoomed.kind == "balance"
        before = self._steps[-1][1] if self._steps else None
        back = "picture" if before is not None and before.kind == "balance" else "back"
        keys = [(self.key_names["why"], "why?" if is_verdict else back)]
        if is_verdict and self._slowly_sampled_group() is not None:
            keys.insert(0, (self.key_names["open"], "look closer"))
        if self.shown is not None and len(self.shown.balance) > 1:
            keys.append((self.key_names["turn"], "next group"))
        return keys

    def action_balance(self) -> None:
        """Show the balance of a group alone; if a group is shown alone, show what it was opened from."""
        if self._is_group_alone:
            self._leave_panel()
        elif (group := self._chosen_group()) is not None:
            self.selected = PanelKey("balance", group)
            self._show_alone(self.selected)
        self._paint()

    def action_why(self) -> None:
        """Show the evidence for a group's verdict; if it is shown already, show what it was opened from."""
        if self.zoomed is not None and self._is_group_alone and self.zoomed.kind == "evidence":
            self._leave_panel()
        elif (group := self._chosen_group()) is not None:
            self.selected = PanelKey("balance", group)
            self._show_alone(PanelKey("evidence", group))
        self._paint()

    @property
    def _is_group_alone(self) -> bool:
        """Whether a group that is still judged is shown alone."""
        if self.zoomed is None or self.zoomed.kind not in {"balance", "evidence"} or self.shown is None:
            return False
        return any(balance.group == self.zoomed.name for balance in self.shown.balance)

    def _chosen_group(self) -> str | None:
        """Return the name of the selected group, or of the selected backend's group.

        Otherwise return the group with the worst verdict. If there is no group, notify the user and return
        None.
        """
        groups = self.shown.balance if self.shown is not None else ()
        if not groups:
            self.notify("no group of two or more backends to compare", timeout=2)
            return None
        name = (self.zoomed or self.selected or PanelKey("", "")).name
        chosen = [group for group in groups if name in {group.group, group.lanes_of, *group.backends}]
        candidates = chosen or groups
        words = list(BalanceWord)
        return min(
            balances_read_first(candidates) or candidates,
            key=lambda balance: (not balance.word.bad, words.index(balance.word)),
        ).group

    def _slowly_sampled_group(self) -> str | None:
        """Return the group that is shown alone, if it is judged by samples too seldom to see a swing."""
        name = "" if self.zoomed is None else self.zoomed.name
        groups = self.shown.balance if self.shown is not None else ()
        slow = (group.group for group in groups if group.group == name and group.is_slow)
        return next(slow, None)

    def action_ranks(self) -> None:
        """Ask about the selected backend; if none is selected, about the only one over several machines."""
        if self.refuse_in_past():
            return
        name = self._backend_to_ask()
        if self.ask_ranks is None:
            self.notify("nothing is polled here", timeout=2)
        elif name is None:
            self.notify("select a backend first: NCCL is asked about its ranks", timeout=3)
        else:
            self.notify(self.ask_ranks(name), timeout=5, markup=False)
            self.redraw()

    def _backend_to_ask(self) -> str | None:
        """Return the name of the backend that the key means; None if that is not clear."""
        backends: tuple[BackendView, ...] = () if self.shown is None else self.shown.backends
        names = {backend.name for backend in backends}
        drawn = [panel.key for panel in self._drawn if panel.key.kind == "backend"]
        only = drawn if len(drawn) == 1 else ()
        keys: list[PanelKey | None] = [self.zoomed, self.selected, self.in_header("backend"), *only]
        for key in keys:
            if key is not None and key.kind == "backend" and key.name in names:
                return key.name
        several = [backend.name for backend in backends if len(backend.nodes) > 1] or sorted(names)
        return several[0] if len(several) == 1 else None

    # The filter and the line of a time

    def on_key(self, event: events.Key) -> None:
        """Close an open input line when Esc is pressed, even if Esc is configured for another action."""
        if event.key == "escape" and self.asked:
            event.stop()
            self.action_back()

    def action_filter(self) -> None:
        """Open the filter's input line."""
        self.open_line(_FILTER_WORDS, self.view.filter)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Apply the filter words typed so far; drop a refusal, which covers the time that is typed."""
        if self.asked == "time":
            self.app.clear_notifications()
        if self.asked == "filter":
            self._first_row = self._scroll = 0
            self._filter_by(clean(event.value, 80))

    def _filter_by(self, words: str) -> None:
        self.show_as(replace(self.view, filter=words))

    def action_go(self) -> None:
        """Open the line where a time is typed."""
        from sparktop.recording.when import EXAMPLES  # late: few type a time

        if self.timeline.span() is not None:
            self.open_line(f"time: {EXAMPLES}")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep the filter, or show the moment of the typed time.

        If the time is invalid, show an error and keep the line open.
        """
        span = self.timeline.span()
        if self.asked != "time" or span is None or not event.value.strip():
            self.close_line()
            return
        from sparktop.recording.when import read_time, require_within  # late: as above

        try:
            moment = require_within(read_time(event.value, span), span)
        except UsageError as error:
            self.notify(str(error), severity="warning", timeout=6, markup=False)
            return
        self.close_line()
        self.timeline.go(moment)
        self.redraw()

    # Moments of the past

    @property
    def frozen(self) -> bool:
        """Whether a past moment is shown."""
        return self.timeline.in_past

    def refuse_in_past(self) -> bool:
        """If a past moment is shown, notify the user that actions on servers are disabled, and return True.

        Otherwise, return False.
        """
        if not self.frozen:
            return False
        self.notify(self.timeline.refusal, timeout=3, markup=False)
        return True

    def _bar_rows(self, width: int) -> list[Row]:
        """Return the row of the time bar; empty while the present is shown."""
        bar = self.timeline.bar() if self.frozen else None
        if bar is None:
            return []
        row, *cells = time_bar_row(bar, width)
        self._bar_cells = cells[0], cells[1]
        return [row]

    def _time_keys(self) -> list[tuple[str, str]]:
        """Return (key, text) pairs that the footer shows first while a past moment is shown."""
        if not self.frozen:
            return []
        keys = {**_TIME_KEYS, "play": "pause" if self.timeline.is_playing else "play"}
        names = [name for name in keys if self.key_names[name] and name not in self.unavailable]
        return [(self.key_names[name], keys[name]) for name in names]

    def action_freeze(self) -> None:
        """Pause the screen, or return from the past to the present; polling, alerts and sweeps continue.

        During a sweep's countdown, only say how to stop it.
        """
        if self._countdown:
            self._say_how_to_stop()
        else:
            self.timeline.toggle()
            self.redraw()

    def action_play(self) -> None:
        """Play the past from the moment shown; if it is playing already, or in the present, pause."""
        self.timeline.play()
        self.redraw()

    def action_step(self, seconds: float) -> None:
        """Move the moment shown by `seconds`, negative is back; at either end, say so."""
        before = self.timeline.word()
        if self.frozen or seconds < 0:
            self.timeline.step(seconds)
        if self.timeline.word() == before:
            self.notify(f"nothing {'later' if seconds > 0 else 'earlier'} is kept", timeout=2)
        self.redraw()

    def action_step_event(self, direction: int) -> None:
        """Move to the next (1) or previous (-1) event, and name it."""
        has_moved, bar = self.timeline.step_event(direction), self.timeline.bar()
        read = "is kept" if self.timeline.has_read_events else "was read so far"
        missing = f"no {'later' if direction > 0 else 'earlier'} event {read}"
        words = event_words(bar) if has_moved and bar is not None else missing
        self.notify(clean(words, _NOTICE_ROWS * (self.size.width - 9)), timeout=6, markup=False)
        self.redraw()

    def action_leap(self, direction: int) -> None:
        """Move the moment shown by a tenth of the time bar: 1 forward, -1 back."""
        bar = self.timeline.bar()
        if bar is not None:
            self.action_step(direction * (bar.last - bar.first).total_seconds() / 10)

    def action_to_start(self) -> None:
        """Scroll to the top of a page higher than the screen, else move to the oldest moment kept."""
        if not self._scroll_alone_to(0):
            self.timeline.to_start()
            self.redraw()

    def action_to_end(self) -> None:
        """Scroll to the end of a page higher than the screen, else move to the present or recording's end."""
        if not self._scroll_alone_to(self._board_height):
            self.timeline.to_end()
            self.redraw()

    def _scroll_alone_to(self, row: int) -> bool:
        """Scroll a panel that is shown alone and higher than the screen to `row`; return False if none is."""
        if self.zoomed is None or self._board_height <= self._room:
            return False
        self._scroll = row
        self.redraw()
        return True

    # Sweeps

    def take_band(self) -> None:
        """Get the state of the sweep for its panel on the board (a sweep, a countdown or nothing); draw it.

        While a past moment is shown, do nothing, unless a countdown is on: it returns the screen to the
        present. When a countdown has just begun, show all panels and select the sweep's panel, so that the
        keys for the countdown work. In the preset "one backend" the selection stays, because it determines
        the backend shown. Without a sweep, its panel is deselected.
        """
        band = self.desk.band()
        if self.frozen:
            if not isinstance(band, Countdown):
                return
            self.timeline.to_end()  # its keys must work
        if isinstance(band, Countdown) and not isinstance(self._band, Countdown):
            # Its keys come next, and its band is visible on the board only.
            self.zoomed, self._scroll = None, 0
            if self.view.preset is not Preset.ONE:  # there the selection determines the backend shown
                self.selected = SWEEP
        elif band is None and self.selected == SWEEP:
            self.selected = None
        self._band = band
        self._paint()

    @property
    def _countdown(self) -> bool:
        """Whether a sweep is about to start."""
        return isinstance(self._band, Countdown)

    @property
    def _sweep_word(self) -> str | None:
        """The header's text on a sweep: one that is announced or running, or in which requests failed."""
        band = self._band
        if isinstance(band, Countdown):
            return "sweep about to start"
        if band is not None and band.failed:
            return f"sweep: {band.failed:,} failed"
        if band is None or band.status.over:
            return None
        share = band.share
        return "sweep" if share is None else f"sweep {100 * share:.0f} %"

    def _sweep_keys(self) -> list[tuple[str, str]]:
        """Return (key, text) pairs that the footer shows first while a sweep's panel is on the board."""
        band = self._band
        if band is None or self.zoomed is not None or self.frozen:
            return []
        if isinstance(band, Countdown):
            return [(self.key_names["back"], "stops it")]
        full = [(self.key_names["zoom"], "whole sweep")] if self.selected in {None, SWEEP} else []
        if band.status.over:
            return [*full, (self.key_names["back"], "closes it")]
        return [*full, (self.key_names["stop-sweep"], "stop")]

    @property
    def _panel_to_load(self) -> PanelKey | None:
        """The panel whose targets a key loads: a marked line, the panel shown alone, or the selected one."""
        lines = self.zoomed is not None and self.zoomed.kind == "members"
        return self.selected if lines and self.selected is not None else self.zoomed or self.selected

    def action_sweep(self) -> None:
        """Start the countdown of the default preset on the selected panel's targets."""
        if not self.refuse_in_past():
            self.desk.start_usual(self._panel_to_load)

    def action_capacity(self) -> None:
        """Start the countdown of a search for how many agents the selected panel's targets can take."""
        if not self.refuse_in_past():
            self.desk.start_capacity(self._panel_to_load)

    def action_preset(self, number: int) -> None:
        """Start the countdown of the configured preset `number` (from 0)."""
        if not self.refuse_in_past():
            self.desk.start_preset(number, self._panel_to_load)

    def action_sweep_editor(self) -> None:
        """Open the sweep editor, where the user chooses targets and load."""
        if not self.refuse_in_past():
            self.desk.edit(self._panel_to_load)

    def action_stop_sweep(self) -> None:
        """Stop the sweep, at the second press within a few seconds."""
        self.desk.stop()

    def _say_how_to_stop(self) -> None:
        self.notify(f"a sweep is about to start: {self.key_names['back']} stops it", timeout=3)

    def action_history(self) -> None:
        """Show the stored results of sweeps."""
        self.desk.history()

    def _open_sweep(self) -> bool:
        """If the sweep's panel or no panel is selected, show the full screen of the sweep and return True.

        During a countdown, return True without showing anything. Return False if there is no sweep or if
        another panel is selected.
        """
        is_selected = self._band is not None and self.selected in {None, SWEEP}
        if not is_selected or self._countdown:
            return is_selected
        self.desk.open_sweep()
        return True

    def _dismiss_sweep(self) -> bool:
        """Remove a finished sweep's panel from the board; return False if there is no such sweep."""
        band = self._band
        if isinstance(band, Countdown) or band is None or not band.status.over or self.frozen:
            return False
        self.desk.dismiss()
        return True
