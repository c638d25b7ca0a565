"""The overview screen: header, board of panels, footer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace
from textual import events
from textual.app import ComposeResult
from textual.binding import BindingsMap
from textual.message import Message

from sparktop.config.keys import KEYS, Key
from sparktop.model.snapshot import Snapshot
from sparktop.model.text import clean
from sparktop.panels.board.bars import header_row, scroll_keys
from sparktop.panels.board.layout import MIN_HEIGHT, MIN_WIDTH, Boxes, PanelKey
from sparktop.panels.board.scene import Scene, flatten, is_wall, too_small_rows
from sparktop.panels.board.view import Arrangement, Preset, Sort, View
from sparktop.panels.machine.processes import ProcessSort
from sparktop.ui.canvas import Canvas, FrugalCompositor
from sparktop.ui.keys import KeyRow, bindings, clicked_key, keys_to_unseen, with_moved_keys
from sparktop.ui.screens.filter_actions import FilterActions, filter_line
from sparktop.ui.screens.rank_actions import RankActions
from sparktop.ui.screens.rewind_actions import time_line
from sparktop.ui.screens.sweep_actions import SWEEP, SweepActions
from sparktop.ui.screens.walk_actions import WalkActions
from sparktop.ui.styles import RoleStyles

if TYPE_CHECKING:
    from sparktop.panels.board.wall import WallOrders

_BOXES = {"nodes": "nodes", "backends": "backends", "events-box": "events", "self": "self_cost"}
"""Field of `Boxes` by the name of the key that shows or hides it."""
_FOOTER_ACTIONS = {"↓": "select(1)", "↑": "select(-1)", "esc": "back"}
HEADER = 1


class OverviewScreen(WalkActions, SweepActions, FilterActions, RankActions):
    """The main screen, which shows all panels on one board."""

    footer_rows = 1  # for the row of keys at the bottom; 0 for a picture without it
    AUTO_FOCUS = "#canvas"
    DEFAULT_CSS = """
    OverviewScreen > Input {
        dock: bottom; height: 1; border: none; padding: 0 1; display: none; background: $background;
    }
    OverviewScreen > Input:focus { border: none; }
    OverviewScreen > Input.asking { display: block; }
    """

    class ViewChanged(Message):
        """Posted when the user changes the view: preset, boxes, sort orders or filters."""

        def __init__(self, view: View) -> None:
            """Store the new view."""
            super().__init__()
            self.view = view

    def __init__(
        self,
        styles: RoleStyles,
        take: Callable[[], Snapshot],
        *,
        view: View | None = None,
        keys: Sequence[Key] = KEYS,
        show_processes: Callable[[tuple[str, ...]], None] | None = None,
    ) -> None:
        """Draw the snapshots that `take` returns with the settings in `view`; `keys` is the key table.

        `show_processes` is called with the names of the nodes whose process table is visible, each time these
        names change.
        """
        super().__init__()
        self._compositor = FrugalCompositor()
        self._take = take
        self._canvas = Canvas(styles)
        self._shown: Snapshot | None = None
        self._key_row = KeyRow()
        self._show_processes = show_processes
        self._processes_of: tuple[str, ...] = ()
        self._painted_size: tuple[int, int] = (0, 0)
        self._arrangement = Arrangement()
        self._orders: WallOrders | None = None
        self.key_table = tuple(keys)
        self._bindings = BindingsMap(bindings(self.key_table))
        self.view = view or View()
        self.coarse = 1
        """Number of poll intervals per dot column of the graphs."""
        self.unavailable: frozenset[str] = frozenset()
        """Names of the keys that cannot help in this program: the row of keys leaves them out."""
        self.notice: str | None = None
        """Text for the header: why polls or drawings are slower than requested; None if they are not."""
        self._opened_in_detail = False

    def compose(self) -> ComposeResult:
        """Yield the widget that shows all rows, and the input lines, which are hidden at first."""
        yield from (self._canvas, filter_line(), time_line())

    @property
    def canvas(self) -> Canvas:
        """The widget that shows all rows."""
        return self._canvas

    @property
    def shown(self) -> Snapshot | None:
        """The snapshot on screen; None before the first."""
        return self._shown

    def redraw(self) -> None:
        """Draw a new snapshot, or the past moment that the timeline chooses."""
        present = self._take()
        past = None if self.timeline is None else self.timeline.picture()
        if past is None:
            self._shown, self._band = present, self._newest_band()
        else:
            self._shown, self._band = past.snapshot, past.sweep
        self._paint()

    def _paint(self) -> None:
        self._painted_size = width, height = self.size
        if self._shown is None or not width or not height:
            return
        if width < MIN_WIDTH or height < MIN_HEIGHT:
            self._drawn, self._key_row.spots = [], []
            self._canvas.show(too_small_rows(width, height))
            self._report_processes(())
            return
        bar = self._bar_rows(width)
        self._room = room = height - HEADER - self.footer_rows - len(bar)
        self._is_wall = is_wall(self._shown, width, room, self.view)
        if self._orders is None and (self._is_wall or self._shown.fleets):
            from sparktop.panels.board.wall import WallOrders  # late: most boards have no wall

            self._orders = WallOrders()
        # A wall counts what its filter hides, and has an order of its own.
        snapshot = (
            self._shown if self._is_wall else self._arrangement.of(self._shown, self.view, self.selected)
        )
        zoomed = self._zoomed(snapshot)
        band = self._band if self.zoomed is None else None  # the header still shows a sweep's progress
        scene = Scene(
            # A zoomed panel names others, such as a backend's nodes, which the filter must not hide.
            snapshot if zoomed is None else self._shown,
            width,
            room,
            self.view,
            selected=self.selected,
            zoomed=zoomed,
            first_row=self._first_row,
            coarse=self.coarse,
            sweep=band,
            orders=self._orders,
        )
        self._scroll = max(0, min(self._scroll, scene.layout.height - room))
        self._drawn = scene.draw(self._scroll, self._scroll + room)
        self._selectable = scene.keys()
        if self.view.preset is Preset.ONE and self.zoomed is None:
            self._selectable = [PanelKey("backend", view.name) for view in snapshot.backends]
            self._selectable[:0] = [SWEEP] if band is not None else []
        self._first_row = scene.first_row
        self._board_height = scene.layout.height
        self._report_processes(scene.process_tables(self._scroll, self._scroll + room))
        board = flatten(self._drawn, width, self._board_height)[self._scroll : self._scroll + room]
        header = header_row(self._shown, width, moment=self._moment(), notice=self.notice, sweep=self._word)
        footer = self._key_row.draw(self._footer_keys(), width, self.key_table)
        self._canvas.show([*with_moved_keys([header, *board], self.key_table), *bar, footer][:height])

    def _report_processes(self, names: tuple[str, ...]) -> None:
        if names != self._processes_of:
            self._processes_of = names
            if self._show_processes is not None:
                self._show_processes(names)

    def _zoomed(self, snapshot: Snapshot) -> PanelKey | None:
        """Return the panel to show alone; None to show all panels.

        This is the panel that the user zoomed, or with the preset "one backend" the selected or first
        backend.
        """
        if self.zoomed is not None or self.view.preset is not Preset.ONE or not snapshot.backends:
            return self.zoomed
        names = [view.name for view in snapshot.backends]
        chosen = self.selected.name if self.selected and self.selected.kind == "backend" else names[0]
        return PanelKey("backend", chosen if chosen in names else names[0])

    def _footer_keys(self) -> list[tuple[str, str]]:
        table = self.key_table
        if self.on_processes:  # the most useful key first: not all fit
            table = tuple(sorted(table, key=lambda key: key.name != "processes"))
        # The frame of a panel that is shown has the key that hides it.
        framed = {name for name, box in _BOXES.items() if getattr(self.view.boxes, box)}
        absent = framed | self.unavailable
        keys = [
            (key.shown, key.footer)
            for key in table
            if key.footer and key.name not in absent and self._helps(key.name)
        ]
        unseen = keys_to_unseen(table, self.view, self._shown) if self.zoomed is None else []
        first = [*unseen, *self._time_keys(), *self._sweep_keys(), *self._group_keys(), *self._wall_keys()]
        named = {shown for shown, _ in first}
        keys = [*first, *(pair for pair in keys if pair[0] not in named)]
        if self.on_processes and self.view.processes.filter:
            keys = [("esc", f"drops filter: {clean(self.view.processes.filter, 20)}"), *keys]
        elif self.view.filter and (self.zoomed is None or self._on_lines):
            keys = [("esc", f"drops filter: {clean(self.view.filter, 20)}"), *keys]
        below = self._board_height - self._room - self._scroll
        return [*scroll_keys(self._scroll, below), *keys]

    def _helps(self, name: str) -> bool:
        """Return whether the key `name` can do something with what is on the screen."""
        shown = self._shown
        servers = 0 if shown is None else len(shown.backends) + len(shown.fleets)
        nodes = 0 if shown is None else len(shown.nodes)
        match name:
            case "balance" | "why":
                return shown is None or bool(shown.balance)
            case "processes":
                return nodes > 0
            case "sort":
                return self.on_processes or max(servers, nodes) > 1
            case "filter":
                return self.on_processes or servers + nodes > 0
            case "sweep" | "capacity" | "sweep-editor":
                return not self.frozen and (shown is None or bool(shown.backends) or bool(shown.routers))
            case _:
                return True

    def show_as(self, view: View) -> None:
        """Draw with the view `view` (preset, boxes, sort orders, filters) and post `ViewChanged`."""
        if view.sort is not self.view.sort:
            self._arrangement = Arrangement()
        self.view = view
        self._paint()
        self.post_message(self.ViewChanged(view))

    def on_resize(self, _: events.Resize) -> None:
        """Draw for the new size; at a start the same size is reported several times."""
        if self.size != self._painted_size:
            self._paint()

    def action_box(self, box: str) -> None:
        """Show or hide the box with the field name `box` of `Boxes`; the last visible box stays."""
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
        """Change to the next sort order of the board, or of the processes if a node is shown alone."""
        if self.on_processes:
            orders, order = list(ProcessSort), self.view.processes
            chosen = orders[(orders.index(order.sort) + 1) % len(orders)]
            self._first_row = 0
            self.show_as(replace(self.view, processes=replace(order, sort=chosen)))
            self.notify(f"processes by {chosen.value}", timeout=2)
            return
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
            self._leave()
        elif self._opens_line() or self._opens_sweep():
            return
        elif self._drawn:
            backends = (panel.key for panel in self._drawn if panel.key.kind == "backend")
            first = self.in_header("backend") or next(backends, self._drawn[0].key)
            chosen = self.selected or first
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
        if self.asks_time:
            self._close_time()
        elif self.asks_filter:
            self._close_filter()
            self._filter_by("")
        elif self._calls_off():
            return
        elif (self.on_processes or self._on_lines) and self._filter:
            self._filter_by("")
        elif self._has_lists and self.view.top:
            self._drop_list()
        elif self.zoomed is not None:
            self._leave()
        elif self.view.filter:
            self.show_as(replace(self.view, filter=""))
        elif self._dismisses():
            return
        else:
            self.selected = None
        self._paint()

    def _leave(self) -> None:
        """Return from the panel shown alone to all panels, or to the panel from which it was opened."""
        if self._steps_back():
            return
        zoomed, self.zoomed = self.zoomed, None
        if zoomed is not None and zoomed.kind == "processes" and self._opened_in_detail:
            self.zoomed = PanelKey("node", zoomed.name)
        elif zoomed is not None and zoomed.kind == "evidence" and not self._why_on_board:
            self.zoomed = PanelKey("balance", zoomed.name)
        else:
            self.view = replace(self.view, processes=replace(self.view.processes, filter=""))
        self._scroll = self._first_row = 0

    def action_processes(self) -> None:
        """Show the processes of the selected node, else of the header's, else of the first; or return."""
        if self.zoomed is not None and self.zoomed.kind == "processes":
            self._leave()
        else:
            names = [view.name for view in self._shown.nodes] if self._shown is not None else []
            keys = (self.zoomed, self.selected, self.in_header("node"))
            chosen = next((key.name for key in keys if key and key.kind == "node"), None)
            if not names:
                self.notify("no node to show the processes of", timeout=2)
                return
            self._opened_in_detail = self.zoomed is not None and self.zoomed.kind == "node"
            self.zoomed = PanelKey("processes", chosen if chosen in names else names[0])
            self._first_row = 0
        self._paint()

    def action_events(self) -> None:
        """Show alerts and events alone; if they are shown alone already, show all panels again."""
        key = PanelKey("events", "")
        self.zoomed = None if self.zoomed == key else key
        self._scroll = 0
        self._paint()

    async def on_canvas_pointed(self, message: Canvas.Pointed) -> None:
        """Run the action of a clicked key; else select the clicked panel, or zoom it if it is selected.

        A click on the header shows alerts and events, one on the number of servers in a state filters by it.
        """
        panel = self._panel_at(message.x, message.y)
        actions = {key.shown: key.action for key in self.key_table} | _FOOTER_ACTIONS
        action = actions.get(clicked_key(self._canvas.rows, self._key_row.spots, message.x, message.y))
        if action is not None:
            self.selected = panel or self.selected
            await self.run_action(action)
        elif message.y == 0:
            self.action_events()
        elif message.y > self._room:
            self._point_at_bar(message.x)
        elif panel is not None and panel.kind == "state":
            self._filter_by_state(panel.name)
        elif panel is not None and self.selected == panel:
            if not self._opens_line():
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
