"""A sweep on the full screen: tracks or curves with the table, and further pages."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingsMap
from textual.screen import Screen

from sparktop.config.keys import SWEEP_KEYS, Key
from sparktop.errors import UsageError
from sparktop.graphics.cells import fit
from sparktop.model.sweep_view import LevelEvidence, LevelKey, SweepView
from sparktop.panels.board.bars import footer_row
from sparktop.panels.board.layout import MIN_HEIGHT, MIN_WIDTH
from sparktop.panels.board.too_small import too_small_rows
from sparktop.panels.parts.rows import Row
from sparktop.panels.sweep.curves import curves_screen
from sparktop.panels.sweep.evidence import evidence_screen
from sparktop.panels.sweep.notices import notices_screen
from sparktop.panels.sweep.screen import drawn_sweep
from sparktop.panels.sweep.table import all_levels, newest_begun
from sparktop.panels.sweep.topology import topology_screen
from sparktop.sweep.compare.references import Reference, load_reference, reference_names
from sparktop.sweep.view.source import SweepSource
from sparktop.ui.canvas import Canvas
from sparktop.ui.frugal import FrugalCompositor
from sparktop.ui.keys import bindings
from sparktop.ui.screens.desk import Desk
from sparktop.ui.styles import RoleStyles

FOOTER = 1
_STEP = 3
"""Rows that one press or one turn of the wheel scrolls."""


class Page(Enum):
    """The pages of the screen."""

    MAIN = "main"
    CURVES = "curves"
    TOPOLOGIES = "topologies"
    EVIDENCE = "evidence"
    NOTICES = "notices"


_FOOTERS = {
    Page.MAIN: ("why", "back", "curves", "topologies", "reference", "stop", "notices", "compare", "history"),
    Page.CURVES: ("back", "curves", "reference", "stop"),
    Page.TOPOLOGIES: ("back", "topologies", "curves", "stop"),
    Page.EVIDENCE: ("back", "turn", "stop"),
    Page.NOTICES: ("back", "notices", "stop"),
}
"""Keys in the footer of each page, the most important first."""
_LIVE, _OVER = frozenset({"stop"}), frozenset({"compare"})
"""Keys of a running sweep only, and of a finished one only."""


class SweepScreen(Screen[None]):
    """Any sweep: a running one, one from a file, or a run elsewhere."""

    AUTO_FOCUS = "#canvas"
    DEFAULT_CSS = "SweepScreen { background: $background; }"

    def __init__(
        self,
        styles: RoleStyles,
        source: SweepSource,
        *,
        desk: Desk | None = None,
        keys: Sequence[Key] = SWEEP_KEYS,
    ) -> None:
        """Draw the views of `source`; `desk` does what reaches beyond this screen."""
        super().__init__()
        self._compositor = FrugalCompositor()
        self._canvas = Canvas(styles)
        self._source = source
        self._desk = desk
        self.key_table = tuple(keys)
        self._bindings = BindingsMap(bindings(self.key_table))
        self.page = Page.MAIN
        self.chosen: LevelKey | None = None
        """The chosen level; None to follow the newest."""
        self.run: int | None = None
        """The run whose requests are drawn; None for the newest."""
        self.tracks = False
        """True if a finished sweep shows its tracks again instead of its curves."""
        self.reference: Reference | None = None
        self._references: list[Reference] | None = None
        self._view: SweepView | None = None
        self._evidence: LevelEvidence | None = None
        self._scroll = 0
        self._height = 0
        self._spots: list[tuple[int, int, str]] = []
        self._rows_of: dict[int, LevelKey] = {}
        self._first_cell = 0

    def compose(self) -> ComposeResult:
        """Yield the canvas."""
        yield self._canvas

    @property
    def canvas(self) -> Canvas:
        """The widget that shows all rows."""
        return self._canvas

    def on_mount(self) -> None:
        """Draw immediately."""
        self.redraw()

    def on_screen_resume(self) -> None:
        """Draw what has changed below another screen."""
        self.redraw()

    def on_resize(self, _: events.Resize) -> None:
        """Draw for the new size."""
        self._paint()

    def redraw(self) -> None:
        """Show the present state of the sweep."""
        self._view = self._source.view()
        self._paint()

    @property
    def room(self) -> int:
        """Rows above the footer."""
        return max(0, self.size.height - FOOTER)

    def _paint(self) -> None:
        width, height = self.size
        view = self._view
        if view is None or not width or not height:
            return
        self._rows_of = {}
        if width < MIN_WIDTH or height < MIN_HEIGHT:
            self._spots = []
            self._canvas.show(too_small_rows(width, height))
            return
        rows = self._page_rows(view, width)
        self._height = len(rows)
        self._scroll = max(0, min(self._scroll, self._height - self.room))
        footer, self._spots = footer_row(self._footer_keys(view), width)
        self._canvas.show([*rows[self._scroll : self._scroll + self.room], footer])

    def _page_rows(self, view: SweepView, width: int) -> list[Row]:
        """Draw the page; change to the main page if there is nothing left to show on it."""
        room = self.room
        if self.page is Page.EVIDENCE:
            level = self._level(view)
            self._evidence = None if level is None else self._source.evidence(level)
            if self._evidence is not None:
                return evidence_screen(
                    self._evidence,
                    width,
                    room,
                    run=self.run,
                    simulated=view.simulated,
                    lengths=view.several_lengths,
                )
        if self.page is Page.TOPOLOGIES and view.topologies is not None:
            compared = view.topologies
            return topology_screen(compared, width, room, title=view.title, simulated=view.simulated)
        if self.page is Page.CURVES and view.plots:
            return curves_screen(view, width, room)
        if self.page is Page.NOTICES:
            return notices_screen(view, width, room)
        self.page = Page.MAIN
        note = "" if self.reference is None else f"beside it: {fit(self.reference.title, 44).rstrip()}"
        drawn = drawn_sweep(view, width, room, chosen=self.chosen, curves=not self.tracks, note=note)
        self._rows_of, self._first_cell = drawn.spots, drawn.first_cell
        return drawn.rows

    def _footer_keys(self, view: SweepView) -> list[tuple[str, str]]:
        table = {key.name: key for key in self.key_table}
        hidden = _LIVE if view.status.over else _OVER
        names = [name for name in (*_FOOTERS[self.page], "help") if name not in hidden]
        if view.topologies is None and self.page is Page.MAIN:
            names.remove("topologies")
        several = self._evidence is not None and len(self._evidence.timelines) > 1
        keys = []
        for name in names:
            if name == "turn":
                keys += [("tab", "other run")] if several else []
            else:
                keys.append((table[name].shown, self._footer_word(table[name])))
        below = self._height - self.room - self._scroll
        return [("↓", f"{below} more rows"), *keys] if below > 0 else keys

    def _footer_word(self, key: Key) -> str:
        if key.name == "reference" and self.reference is not None:
            return f"ref: {fit(self.reference.name, min(24, len(self.reference.name)))}"
        return key.footer or ""

    def _level(self, view: SweepView) -> LevelKey | None:
        """Return the chosen level, else the newest that has begun; None without a level."""
        levels = all_levels(view)
        keys = [level.key for level in levels]
        if self.chosen in keys:
            return self.chosen
        return keys[newest_begun(levels)] if keys else None

    def _show(self, page: Page) -> None:
        """Change to a page, or to the main page if that page is shown already."""
        self.page = Page.MAIN if self.page is page else page
        self._scroll = 0
        self.redraw()

    def action_step(self, step: int) -> None:
        """Choose another level; scroll a page that is taller than the screen."""
        if self.page is not Page.MAIN:
            self._scroll += _STEP * step
            self._paint()
            return
        view = self._view
        levels = [] if view is None else all_levels(view)
        keys = [level.key for level in levels]
        if not keys:
            return
        if self.chosen in keys:
            self.chosen = keys[max(0, min(len(keys) - 1, keys.index(self.chosen) + step))]
        else:
            self.chosen = keys[newest_begun(levels)]
        self._paint()

    def action_scroll(self, screens: int) -> None:
        """Scroll by screens; in the table by as many levels."""
        if self.page is Page.MAIN:
            self.action_step(screens * max(1, len(self._rows_of) - 1))
        else:
            self._scroll += screens * max(1, self.room - 2)
            self._paint()

    def action_why(self) -> None:
        """Show the evidence on the chosen level."""
        view = self._view
        if self.page is Page.EVIDENCE or view is None:
            return
        level = self._level(view)
        if level is None or self._source.evidence(level) is None:
            self._say("nothing is known of this level yet")
            return
        self.run = None
        self._show(Page.EVIDENCE)

    def action_turn(self, step: int) -> None:
        """Show the requests of another run of the level; on other pages choose another level or scroll."""
        if self.page is not Page.EVIDENCE or self._evidence is None:
            self.action_step(step)
            return
        runs = [timeline.run for timeline in self._evidence.timelines]
        if len(runs) > 1:
            at = runs.index(self.run) if self.run in runs else len(runs) - 1
            self.run = runs[(at + step) % len(runs)]
            self._paint()

    def action_curves(self) -> None:
        """Show the curves alone, or return; a finished sweep's main page then swaps tracks and curves."""
        view = self._view
        if view is None:
            return
        if not view.plots:
            self._say("no curves yet: no level is done")
            return
        if self.page is Page.CURVES:
            self.tracks = view.status.over and view.live is not None and not self.tracks
        self._show(Page.CURVES)

    def action_topologies(self) -> None:
        """Show the comparison of targets, or the main page again."""
        if self._view is not None and self._view.topologies is None:
            self._say("one target alone: nothing to lay beside one another")
            return
        self._show(Page.TOPOLOGIES)

    def action_notices(self) -> None:
        """Show all findings and notices of the sweep, or the main page again."""
        self._show(Page.NOTICES)

    def action_reference(self) -> None:
        """Add the next published table to the curves; after the last one, none."""
        view = self._view
        if view is None:
            return
        fitting = [reference for reference in self._all_references() if fits(reference, view)]
        if not fitting:
            self._say("no published table has figures for these curves")
            return
        names = [reference.name for reference in fitting]
        at = names.index(self.reference.name) + 1 if self.reference and self.reference.name in names else 0
        self.reference = fitting[at] if at < len(fitting) else None
        self._source.refer(() if self.reference is None else (self.reference,))
        if self.reference is not None:
            self._say(f"{self.reference.title}; {self.reference.source}")
        self.redraw()

    def _all_references(self) -> list[Reference]:
        if self._references is None:
            self._references = []
            for name in reference_names():
                try:
                    self._references.append(load_reference(name))
                except UsageError as error:
                    self._say(str(error))
        return self._references

    def action_stop(self) -> None:
        """Stop the sweep, at the second press."""
        if self._view is not None and self._view.status.over:
            self._say("this sweep is over")
        elif self._desk is not None:
            self._desk.stop()

    def action_history(self) -> None:
        """Show the results on disk."""
        if self._desk is not None:
            self._desk.history()

    def action_compare(self) -> None:
        """Let the user choose another result to compare with."""
        if self._desk is not None:
            self._desk.compare(self._source)

    def action_help(self) -> None:
        """Show the help on the keys of this screen."""
        from sparktop.ui.screens.help import SweepHelpScreen

        self.app.push_screen(SweepHelpScreen(self.key_table))

    def action_back(self) -> None:
        """Return from a page to the main page, and from there to where the sweep was opened."""
        if self.page is not Page.MAIN:
            self._show(Page.MAIN)
        else:
            self.dismiss(None)

    async def on_canvas_pointed(self, message: Canvas.Pointed) -> None:
        """Choose the clicked level; a second click opens it; the words of the footer are buttons."""
        if message.y == self.size.height - 1:
            actions = {key.shown: key.action for key in self.key_table}
            actions |= {"↓": "step(1)", "tab": "turn(1)"}
            for first, end, shown in self._spots:
                if first <= message.x < end:
                    await self.run_action(actions[shown])
            return
        level = self._rows_of.get(message.y + self._scroll)
        if level is None or message.x < self._first_cell:
            return
        if level == self.chosen:
            self.action_why()
        else:
            self.chosen = level
            self._paint()

    def on_canvas_wheeled(self, message: Canvas.Wheeled) -> None:
        """Scroll a page, or move through the levels of the table."""
        self.action_step(message.direction)

    def _say(self, message: str) -> None:
        if self._desk is not None:
            self._desk.say(message)
        else:
            self.notify(message, timeout=3, markup=False)


def fits(reference: Reference, view: SweepView) -> bool:
    """Return whether a published table has a drawn figure at concurrencies that overlap those measured."""
    for plot in view.plots:
        own = [point.concurrency for line in plot.lines if line.reference is None for point in line.points]
        for series in reference.series:
            theirs = [level.load.concurrency for level in series.levels if plot.metric in level.figures]
            if own and theirs and min(theirs) <= max(own) and max(theirs) >= min(own):
                return True
    return False
