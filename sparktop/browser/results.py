"""Pages of stored results of sweeps: their list, and each result with its curves, levels and findings.

Files are read in a thread, and only read: nothing is renamed, imported or removed.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from sparktop.browser.drawing import not_found_section, notice_section, page_picture
from sparktop.browser.page import PageKind, WebPage
from sparktop.browser.picture import Link, PageSection, Picture, row_html
from sparktop.errors import SparktopError
from sparktop.model.snapshot import Snapshot
from sparktop.model.sweep import HistoryRow, SweepView
from sparktop.panels.parts.text import Row, row_text
from sparktop.panels.sweep.history import RESULTS_SHARE, TOP, history_screen
from sparktop.panels.sweep.screen import curves_screen, notices_screen, sweep_screen
from sparktop.panels.sweep.table import all_levels
from sparktop.panels.sweep.topology import topology_screen
from sparktop.sweep.history import History

REFRESH_EVERY_S = 5.0
"""Least seconds between two searches for new results."""
MOST_LISTED = 60
"""Results on the page of the list, the newest."""
_NOTHING = (
    "No sweep is stored on this machine yet: sparktop sweep TARGET makes one, and so does s in a terminal."
)
_MOST_FILES = 2000
"""Results that have a page, the newest."""
_MOST_VIEWS = 8
"""Results that are kept in memory, those requested last."""
_LIST_ROWS, _FRAME_ROWS = 34, 6
"""Least rows of the list with the newest result below it, and those of its frame, headings and rule."""
_CURVES, _LEAST, _TOPOLOGIES = 30, 20, 12
"""Least rows of a result's curves, of its main panel without its levels, and of the comparison of targets."""
_WIDE = 100
"""Width in cells from which on the main panel of a result shows two plots instead of one."""


class ResultPages:
    """The stored results in a folder, as pages."""

    def __init__(self, folder: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Prepare to read results in `folder`; nothing is read before a page needs it."""
        self._history = History(folder)
        self._clock = clock
        self._searched_at = float("-inf")
        self._rows: list[HistoryRow] = []
        self._load = lru_cache(maxsize=_MOST_VIEWS)(self._load_view)
        self._reading = asyncio.Lock()

    async def refresh(self) -> None:
        """Search for new and changed results, at most every `REFRESH_EVERY_S` seconds."""
        async with self._reading:
            if self._clock() - self._searched_at >= REFRESH_EVERY_S:
                self._searched_at = self._clock()
                self._rows = await asyncio.to_thread(self._read_rows)

    def _read_rows(self) -> list[HistoryRow]:
        self._history.find_changes()
        while self._history.read():
            pass
        return self._history.rows()[:_MOST_FILES]

    async def draw(self, page: WebPage, snapshot: Snapshot, width: int) -> Picture:
        """Draw the list of results, or one of them."""
        if page.kind is PageKind.SWEEPS:
            return page_picture([(await self._list_section(width),)], snapshot, width, title="sweeps")
        view = await self._read_view(page.name)
        if view is None:
            return page_picture(
                ((not_found_section(page, width),),), snapshot, width, title=page.name, is_found=False
            )
        bands = [(section,) for section in _result_sections(view, width)]
        return page_picture(bands, snapshot, width, title=view.title)

    async def _list_section(self, width: int) -> PageSection:
        rows = self._rows[:MOST_LISTED]
        if not rows:
            return notice_section(_NOTHING, width)
        preview = await self._read_view(rows[0].key)
        # So high that the share of the results holds all of them: a page cannot scroll them.
        height = max(_LIST_ROWS, math.ceil(len(rows) / RESULTS_SHARE) + _FRAME_ROWS)
        drawn = history_screen(rows, width, height, preview=preview)
        links = [
            Link(WebPage(PageKind.SWEEP, row.key).path, f"sweep {row.name}", 1, TOP + index, width - 2)
            for index, row in enumerate(rows)
            if row.problem is None
        ]
        return _rows_section("Results of sweeps, the newest first", width, drawn, links)

    async def _read_view(self, key: str) -> SweepView | None:
        """Return the view of a result; None if there is none of this key, or it cannot be read."""
        row = next((listed for listed in self._rows if listed.key == key), None)
        if row is None or row.problem is not None:
            return None
        return await asyncio.to_thread(self._load, row)

    def _load_view(self, row: HistoryRow) -> SweepView | None:
        """Return the view of a result whose row is as given; None if it cannot be read."""
        try:
            return self._history.source(row.key).view()
        except SparktopError:
            return None


def _result_sections(view: SweepView, width: int) -> Iterator[PageSection]:
    """Yield the sections of a result: its picture with its levels, curves, comparison and findings."""
    height = max(_LEAST + len(all_levels(view)), 2 * _LEAST)
    yield _rows_section(f"Sweep {view.title}", width, sweep_screen(view, width, height))
    if len(view.plots) > (2 if width >= _WIDE else 1):
        yield _rows_section("Curves", width, curves_screen(view, width, _CURVES))
    if view.topologies is not None:
        rows = topology_screen(
            view.topologies, width, _TOPOLOGIES, title=view.title, simulated=view.simulated
        )
        yield _rows_section("Comparison of targets", width, rows)
    if view.verdict or view.notices:
        yield _rows_section("Findings", width, notices_screen(view, width, 3))


def _rows_section(heading: str, width: int, rows: Sequence[Row], links: Sequence[Link] = ()) -> PageSection:
    *body, edge = rows
    while body and not row_text(body[-1]).strip("│ "):  # empty rows above the lower edge
        body.pop()
    return PageSection(heading, width, tuple(map(row_html, [*body, edge])), tuple(links))
