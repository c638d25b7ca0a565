"""The full screen of a sweep: progress tracks or curves above the table of levels, and further pages."""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType

from sparktop.config.keys import SWEEP_KEYS
from sparktop.errors import UsageError
from sparktop.graphics.cells import fit
from sparktop.model.load import Level
from sparktop.model.sweep import LevelEvidence, SweepView
from sparktop.model.yardsticks import Reference
from sparktop.panels.board.bars import scroll_keys
from sparktop.panels.parts.text import Row
from sparktop.panels.sweep.evidence import evidence_screen
from sparktop.panels.sweep.screen import curves_screen, draw_sweep, notices_screen
from sparktop.panels.sweep.table import all_levels, default_key
from sparktop.panels.sweep.topology import topology_screen
from sparktop.sweep.compare.series import load_reference, published_series, reference_names
from sparktop.sweep.view.curves import fits
from sparktop.sweep.view.result import SweepSource, stored_source
from sparktop.ui.canvas import Canvas
from sparktop.ui.report import save_report
from sparktop.ui.screens.base import Desk
from sparktop.ui.screens.canvas_screen import CanvasScreen
from sparktop.ui.styles import RoleStyles

FOOTER = 1
"""Rows below the sweep."""
_STEP = 3
"""Rows that one key press or one step of the mouse wheel scrolls."""


class SweepPage(Enum):
    """The pages of the full screen of a sweep."""

    MAIN = "main"
    CURVES = "curves"
    TOPOLOGIES = "topologies"
    EVIDENCE = "evidence"
    NOTICES = "notices"


_FOOTERS = {
    SweepPage.MAIN: (
        "why",
        "back",
        "curves",
        "topologies",
        "reference",
        "stop",
        "notices",
        "compare",
        "limits",
        "history",
        "report",
    ),
    SweepPage.CURVES: ("back", "curves", "reference", "report", "stop"),
    SweepPage.TOPOLOGIES: ("back", "topologies", "curves", "report", "stop"),
    SweepPage.EVIDENCE: ("back", "turn", "stop"),
    SweepPage.NOTICES: ("back", "notices", "stop"),
}
"""Names of the keys in the footer of each page, the most important first."""
_LIVE, _OVER = frozenset({"stop"}), frozenset({"compare", "limits"})
"""Names of the keys for a running sweep only, and of the keys for a finished sweep only."""
_TITLE_CELLS, _NAME_CELLS = 44, 24
"""Cells of a published table's title above the curves, and of its name in the footer."""


class SweepScreen(CanvasScreen):
    """Shows a sweep: one that is running, a stored result, or the sweep of another program."""

    DEFAULT_CSS = "SweepScreen { background: $background; }"
    footer_actions = MappingProxyType({"↓": "step(1)", "↑": "step(-1)", "tab": "turn(1)"})

    def __init__(self, styles: RoleStyles, source: SweepSource, *, desk: Desk | None = None) -> None:
        """Draw the views of `source`.

        `desk` carries out the keys that stop the sweep and open other screens; if it is None, these keys do
        nothing.
        """
        super().__init__(styles, SWEEP_KEYS)
        self._source = source
        self._desk = desk
        self.page = SweepPage.MAIN
        self.chosen: Level | None = None
        """The selected level; None for the one of `default_key`."""
        self.run: int | None = None
        """Number of the load run whose requests the evidence page draws; None for the newest."""
        self.tracks = False
        """True if the main page of a finished sweep shows its progress tracks instead of its curves."""
        self.reference: Reference | None = None
        self._references: list[Reference] | None = None
        self._view = source.view()
        self._evidence: LevelEvidence | None = None
        self._scroll = 0
        self._page_height = 0
        """Rows of the page, also those not on screen."""
        self._level_by_row: dict[int, Level] = {}
        """The level in each drawn row of the main page, by its index."""
        self._levels_left_edge = 0
        """First cell of these levels."""

    def on_mount(self) -> None:
        """Draw at once."""
        self.redraw()

    def on_screen_resume(self) -> None:
        """Draw when another screen is closed, because the sweep may have changed meanwhile."""
        self.redraw()

    def redraw(self) -> None:
        """Get the present view of the sweep and draw it."""
        self._view = self._source.view()
        self._paint()

    @property
    def room(self) -> int:
        """Number of rows above the footer."""
        return max(0, self.size.height - FOOTER)

    def _rows(self, width: int, height: int) -> list[Row]:
        self._level_by_row = {}
        rows = self._page_rows(self._view, width, height)
        self._page_height = len(rows)
        self._scroll = max(0, min(self._scroll, self._page_height - height))
        return rows[self._scroll : self._scroll + height]

    def _page_rows(self, view: SweepView, width: int, height: int) -> list[Row]:
        """Return the rows of the present page; change to the main page if the present one has no content."""
        if self.page is SweepPage.EVIDENCE:
            level = self._selected_level()
            self._evidence = None if level is None else self._source.evidence(level)
            if self._evidence is not None:
                return evidence_screen(
                    self._evidence,
                    width,
                    height,
                    run=self.run,
                    simulated=view.simulated,
                    lengths=view.several_lengths,
                )
        if self.page is SweepPage.TOPOLOGIES and view.topologies is not None:
            return topology_screen(
                view.topologies,
                width,
                height,
                plots=view.plots,
                title=view.title,
                headline=view.headline or "",
                simulated=view.simulated,
            )
        if self.page is SweepPage.CURVES and view.plots:
            return curves_screen(view, width, height)
        if self.page is SweepPage.NOTICES:
            return notices_screen(view, width, height)
        self.page = SweepPage.MAIN
        note = ""
        if self.reference is not None:
            note = f"beside it: {fit(self.reference.title, _TITLE_CELLS).rstrip()}"
        rows, self._level_by_row, self._levels_left_edge = draw_sweep(
            view, width, height, chosen=self._selected_level(), curves=not self.tracks, note=note
        )
        return rows

    def _footer(self) -> list[tuple[str, str]]:
        table = {key.name: key for key in self.key_table}
        hidden = set(_LIVE if self._view.status.over else _OVER)
        if self._evidence is None or len(self._evidence.timelines) < 2:  # noqa: PLR2004 - another run
            hidden.add("turn")
        if self._view.topologies is None:
            hidden.add("topologies")
        keys = []
        for name in (*_FOOTERS[self.page], "help"):
            shown, word = table[name].shown, table[name].footer or ""
            if name == "turn":
                shown, word = "tab", "other run"
            elif name == "reference" and self.reference is not None:
                word = f"published: {fit(self.reference.name, _NAME_CELLS).rstrip()}"
            if name not in hidden:
                keys.append((shown, word))
        return [*scroll_keys(self._scroll, self._page_height - self.room - self._scroll), *keys]

    def _selected_level(self) -> Level | None:
        """Return the selected level, else the best or the newest one; None if there is no level."""
        is_listed = any(level.key == self.chosen for level in all_levels(self._view))
        return self.chosen if is_listed else default_key(self._view)

    def _toggle_page(self, page: SweepPage) -> None:
        """Change to `page`, or to the main page if `page` is shown already."""
        self.page = SweepPage.MAIN if self.page is page else page
        self._scroll = 0
        self.redraw()

    def action_step(self, step: int) -> None:
        """Select the next (1) or previous (-1) level; on pages without levels, scroll."""
        if self.page is not SweepPage.MAIN:
            self._scroll += _STEP * step
            self._paint()
            return
        keys, selected = [level.key for level in all_levels(self._view)], self._selected_level()
        if selected in keys:
            self.chosen = keys[max(0, min(len(keys) - 1, keys.index(selected) + step))]
            self._paint()

    def action_scroll(self, screens: int) -> None:
        """Scroll by `screens` screens; on the main page, move the selection by as many levels as fit."""
        if self.page is SweepPage.MAIN:
            self.action_step(screens * max(1, len(self._level_by_row) - 1))
        else:
            self._scroll += screens * max(1, self.room - 2)
            self._paint()

    def action_why(self) -> None:
        """Show the evidence on the selected level; if it is shown already, show the main page."""
        level = self._selected_level()
        if level is None or self._source.evidence(level) is None:
            self._say("nothing is known of this level yet")
            return
        self.run = None
        self._toggle_page(SweepPage.EVIDENCE)

    def action_turn(self, step: int) -> None:
        """Show the requests of the next (1) or previous (-1) load run of the level.

        On other pages than the evidence, do the same as `action_step`.
        """
        if self.page is not SweepPage.EVIDENCE or self._evidence is None:
            self.action_step(step)
            return
        runs = [timeline.run for timeline in self._evidence.timelines]
        if len(runs) > 1:
            index = runs.index(self.run) if self.run in runs else len(runs) - 1
            self.run = runs[(index + step) % len(runs)]
            self._paint()

    def action_curves(self) -> None:
        """Show the page of curves; if it is shown already, show the main page.

        Leaving the page of curves swaps progress tracks and curves on the main page of a finished sweep that
        was watched live.
        """
        view = self._view
        if not view.plots:
            self._say("no curves yet: no level is done")
            return
        if self.page is SweepPage.CURVES:
            can_swap = view.status.over and view.live is not None
            self.tracks = can_swap and not self.tracks
        self._toggle_page(SweepPage.CURVES)

    def action_topologies(self) -> None:
        """Show the page that compares the targets; if it is shown already, show the main page."""
        if self._view.topologies is None:
            self._say("only one target: nothing to compare")
        else:
            self._toggle_page(SweepPage.TOPOLOGIES)

    def action_notices(self) -> None:
        """Show the page of all findings and notices; if it is shown already, show the main page."""
        self._toggle_page(SweepPage.NOTICES)

    def action_reference(self) -> None:
        """Add the next published table of results to the curves; after the last table, none."""
        fitting = [reference for reference in self._usable_references() if fits(reference, self._view)]
        if not fitting:
            self._say("no published table has figures for these curves")
            return
        names = [reference.name for reference in fitting]
        shown = None if self.reference is None else self.reference.name
        index = names.index(shown) + 1 if shown in names else 0
        self.reference = fitting[index] if index < len(fitting) else None
        self._source.refer(() if self.reference is None else (self.reference,))
        if self.reference is not None:
            self._say(f"{self.reference.title}; {self.reference.source}")
        self.redraw()

    def _usable_references(self) -> list[Reference]:
        if self._references is None:
            self._references = []
            for name in reference_names():
                try:
                    self._references.append(load_reference(name))
                except UsageError as error:
                    self._say(str(error))
        return self._references

    def action_stop(self) -> None:
        """Stop the sweep, at the second press within a few seconds."""
        if self._view.status.over:
            self._say("this sweep is over")
        elif self._desk is not None:
            self._desk.stop()

    def action_history(self) -> None:
        """Show the stored results of sweeps."""
        if self._desk is not None:
            self._desk.history()

    def action_compare(self) -> None:
        """Show the stored results, one of which the user can choose to compare with this sweep."""
        if self._desk is not None:
            self._desk.compare(self._source)

    def action_limits(self) -> None:
        """Ask for limits; open a screen that answers from the measured levels which load keeps them.

        If the sweep has several prompt lengths, only the levels with the selected level's length are used.
        """
        from sparktop.ui.screens.dialogs import LimitsScreen  # late: no first picture needs it

        if not self._view.status.over or self._source.result is None:
            self._say("other limits are for results of sparktop's own sweeps that are over")
        else:
            self.app.push_screen(LimitsScreen(), self._answer_typed_limits)

    def _answer_typed_limits(self, typed: str | None) -> None:
        from sparktop.sweep.plan.capacity import parse_conditions
        from sparktop.sweep.plan.plan import Capacity
        from sparktop.sweep.run.again import answer_from_levels

        result = self._source.result
        if not typed or result is None:
            return
        kind, level = result.plan.load, self._selected_level()
        prompt_tokens = level.pp if level is not None and self._view.several_lengths else None
        try:
            limits = Capacity(kind, parse_conditions(typed, kind))
            answers = answer_from_levels(result, limits, prompt_tokens)
        except UsageError as error:
            self._say(str(error))
        else:
            source = stored_source(answers, self._view.title)
            self.app.push_screen(SweepScreen(self.canvas.role_styles, source, desk=self._desk))

    def action_report(self) -> None:
        """Write a report of the sweep into the current folder."""

        async def save() -> None:
            beside = () if self.reference is None else published_series(self.reference)
            self._say(await save_report(self._source, beside))

        self.run_worker(save(), group="report", exclusive=True, exit_on_error=False)

    def action_help(self) -> None:
        """Show the help on the keys of this screen."""
        from sparktop.ui.screens.help import SweepHelpScreen

        self.app.push_screen(SweepHelpScreen(self.key_table))

    def action_back(self) -> None:
        """Return from a page to the main page; from the main page, close this screen."""
        if self.page is not SweepPage.MAIN:
            self._toggle_page(SweepPage.MAIN)
        else:
            self.dismiss(None)

    async def _point(self, x: int, y: int) -> None:
        """Select the clicked level, or show its evidence if it is selected already."""
        level = self._level_by_row.get(y + self._scroll)
        if level is None or x < self._levels_left_edge:
            return
        if level == self._selected_level():
            self.action_why()
        else:
            self.chosen = level
            self._paint()

    def on_canvas_wheeled(self, message: Canvas.Wheeled) -> None:
        """Select another level; on pages without levels, scroll."""
        self.action_step(message.direction)

    def _say(self, message: str) -> None:
        if self._desk is not None:
            self._desk.say(message)
        else:
            self.notify(message, timeout=3, markup=False)
