"""Screen updates that send only the changed cells to the terminal.

Textual's own partial update sends a changed row from the left edge of its widget on, once for each range of
changed cells in it, and sets and resets both colours around each text segment; on the overview at 200x50,
three fifths of all bytes were colours. Here a range begins at its first changed cell, and a colour is sent
only when it changes. Where one canvas fills the screen, its cells are taken from its rows directly: Textual's
own path through strips and chops costs three times the processor time of drawing the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Protocol, runtime_checkable

from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, Compositor
from textual.strip import Strip

_ATTRIBUTES = (
    ("bold", "1"),
    ("dim", "2"),
    ("italic", "3"),
    ("underline", "4"),
    ("blink", "5"),
    ("blink2", "6"),
    ("reverse", "7"),
    ("conceal", "8"),
    ("strike", "9"),
    ("underline2", "21"),
    ("frame", "51"),
    ("encircle", "52"),
    ("overline", "53"),
)
"""Rich's text attributes, each with its parameter in an SGR escape sequence (ECMA-48)."""
_Parts = tuple[str, str, str]


@lru_cache(maxsize=1024)
def _parts(style: Style, system: ColorSystem) -> _Parts:
    """Return (attributes, foreground, background) of a style as parameters of an SGR escape sequence."""
    attributes = ";".join(code for name, code in _ATTRIBUTES if getattr(style, name))
    foreground = "" if style.color is None else ";".join(style.color.downgrade(system).get_ansi_codes())
    background = ""
    if style.bgcolor is not None:
        background = ";".join(style.bgcolor.downgrade(system).get_ansi_codes(foreground=False))
    return attributes, foreground, background


@lru_cache(maxsize=1024)
def _change(before: _Parts | None, after: _Parts) -> str:
    """Return the escape sequence that changes the style from `before` to `after`; "" if they are equal.

    An attribute such as bold can only be ended by a reset of everything. `before` is None if the style is
    unknown.
    """
    if before == after:
        return ""
    fresh = before is None or before[0] != after[0]
    fresh = fresh or any(had and not has for had, has in zip(before or (), after, strict=False))
    if fresh or before is None:
        return f"\x1b[{';'.join(['0', *(part for part in after if part)])}m"
    return f"\x1b[{';'.join(new for old, new in zip(before, after, strict=True) if old != new)}m"


@runtime_checkable
class HasCells(Protocol):
    """A widget that returns its cells, as styled text segments, without the detour through strips."""

    def cells(self, y: int, first: int, end: int) -> Iterable[Segment]:
        """Return the cells [`first`, `end`) of row `y` as they are drawn on the terminal."""
        ...


def _escaped(pieces: Iterable[tuple[int, int, Iterable[Segment]]], console: Console) -> str:
    """Return the text and escape sequences that draw `pieces`: (column, row, cells) each."""
    system = console._color_system or ColorSystem.TRUECOLOR  # noqa: SLF001 - as Textual's own updates do
    out: list[str] = []
    current: _Parts | None = None
    known: dict[int, tuple[Style | None, _Parts]] = {}
    """By the identity of a style, which is kept here: its hash costs more than everything else."""
    for x, y, cells in pieces:
        out.append(f"\x1b[{y + 1};{x + 1}H")
        for text, style, control in cells:
            if style is not None and style.link:
                # A link is a sequence of its own; Rich writes it and resets after it.
                out.append(style.render(text, color_system=system))
                current = None
                continue
            if not control:
                found = known.get(id(style))
                if found is None:
                    found = known[id(style)] = style, _parts(style or Style.null(), system)
                wanted = found[1]
                if wanted is not current:
                    out.append(_change(current, wanted))
                    current = wanted
            out.append(text)
    out.append("\x1b[0m")
    return "".join(out)


class FrugalUpdate(ChopsUpdate):
    """A partial screen update that sends only the cells that changed, not their complete rows."""

    def _pieces(self) -> Iterator[tuple[int, int, Strip]]:
        """Yield (column, row, cells) of each changed range of cells, split at the edges of widgets."""
        for y, first, end in self.spans:
            for chop_end, (x, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=False):
                if strip is None or x >= end or chop_end <= first:
                    continue
                yield max(x, first), y, strip.crop(max(0, first - x), min(chop_end, end) - x)

    def render_segments(self, console: Console) -> str:
        """Return the text and escape sequences to send to the terminal."""
        return _escaped(self._pieces(), console)


class CellsUpdate(ChopsUpdate):
    """A partial update of a screen that one widget fills."""

    def __init__(self, widget: HasCells, spans: list[tuple[int, int, int]]) -> None:
        """Send the cells `spans` of `widget`: (row, first column, end column) each."""
        super().__init__([], spans, [])
        self._widget = widget

    def render_segments(self, console: Console) -> str:
        """Return the text and escape sequences to send to the terminal."""
        cells = self._widget.cells
        return _escaped(((first, y, cells(y, first, end)) for y, first, end in self.spans), console)


class FrugalCompositor(Compositor):
    """A Textual compositor whose partial updates send only the cells that changed."""

    def render_partial_update(self) -> ChopsUpdate | None:
        """Return the cells that changed since the last update; None if none did."""
        widget = self._filling()
        if widget is not None and self._dirty_regions:
            spans = list(self._regions_to_spans(self._dirty_regions))
            self._dirty_regions.clear()
            return CellsUpdate(widget, spans)
        update = super().render_partial_update()
        return update and FrugalUpdate(update.chops, update.spans, update.chop_ends)

    def update_of(self, widget: HasCells, spans: list[tuple[int, int, int]]) -> CellsUpdate | None:
        """Return an update of the cells `spans` of `widget`: (row, first column, end column) each.

        None unless the widget fills the screen and nothing else waits to be drawn.
        """
        return None if self._dirty_regions or self._filling() is not widget else CellsUpdate(widget, spans)

    def _filling(self) -> HasCells | None:
        """Return the widget that fills the screen with nothing in front of it; None if there is none."""
        for widget, (region, clip) in self.visible_widgets.items():
            if region.width and region.height:
                if isinstance(widget, HasCells) and region == clip == self.size.region:
                    return widget
                break
        return None
