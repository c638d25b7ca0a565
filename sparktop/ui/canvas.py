"""A full-screen widget that shows rows of styled text and sends only changed cells to the terminal.

Textual's own partial update sends a changed row from the left edge of its widget on, once for each range of
changed cells in it, and sets and resets both colours around each text segment: on the overview at 200x50,
three fifths of all bytes were colours. Here a range begins at its first changed cell, and a colour is sent
only when it changes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate

from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual._compositor import ChopsUpdate, Compositor
from textual.filter import LineFilter
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from sparktop.graphics.cells import cell_width, is_narrow
from sparktop.panels.parts.text import Row
from sparktop.ui.styles import RoleStyles

_SgrParts = tuple[str, str, str]


@lru_cache(maxsize=1024)
def _sgr_parts(style: Style, system: ColorSystem) -> _SgrParts:
    """Return (attributes, foreground, background) of a style as parameters of an SGR escape sequence."""
    attributes = style.without_color._make_ansi_codes(system)  # noqa: SLF001 - it is what Rich itself writes
    foreground = "" if style.color is None else ";".join(style.color.downgrade(system).get_ansi_codes())
    background = ""
    if style.bgcolor is not None:
        background = ";".join(style.bgcolor.downgrade(system).get_ansi_codes(foreground=False))
    return attributes, foreground, background


@lru_cache(maxsize=1024)
def _sgr_change(before: _SgrParts | None, after: _SgrParts) -> str:
    """Return the escape sequence that changes the style from `before` to `after`; "" if they are equal.

    An attribute such as bold can only be ended by a reset of everything. `before` is None if the style is
    unknown.
    """
    if before == after:
        return ""
    reset = f"\x1b[{';'.join(['0', *(part for part in after if part)])}m"
    if before is None:
        return reset
    loses_a_colour = any(had and not has for had, has in zip(before, after, strict=True))
    if before[0] != after[0] or loses_a_colour:
        return reset
    return f"\x1b[{';'.join(new for old, new in zip(before, after, strict=True) if old != new)}m"


def _drawing_sequences(pieces: Iterable[tuple[int, int, Iterable[Segment]]], console: Console) -> str:
    """Return the text and escape sequences that draw `pieces`: (column, row, cells) each."""
    system = console._color_system or ColorSystem.TRUECOLOR  # noqa: SLF001 - as Textual's own updates do
    out: list[str] = []
    current: _SgrParts | None = None
    cached: dict[int, tuple[Style | None, _SgrParts]] = {}
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
                sequences = cached.get(id(style))
                if sequences is None:
                    sequences = cached[id(style)] = style, _sgr_parts(style or Style.null(), system)
                wanted = sequences[1]
                if wanted is not current:
                    out.append(_sgr_change(current, wanted))
                    current = wanted
            out.append(text)
    out.append("\x1b[0m")
    return "".join(out)


class FrugalUpdate(ChopsUpdate):
    """A partial screen update that sends only the cells that changed, not their complete rows."""

    def _changed_pieces(self) -> Iterator[tuple[int, int, Strip]]:
        """Yield (column, row, cells) of each changed range of cells, split at the edges of widgets."""
        for y, first, end in self.spans:
            for chop_end, (x, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=False):
                if strip is None or x >= end or chop_end <= first:
                    continue
                yield max(x, first), y, strip.crop(max(0, first - x), min(chop_end, end) - x)

    def render_segments(self, console: Console) -> str:
        """Return the text and escape sequences to send to the terminal."""
        return _drawing_sequences(self._changed_pieces(), console)


class CellsUpdate(ChopsUpdate):
    """A partial update of a screen that one widget fills."""

    def __init__(self, widget: Canvas, spans: list[tuple[int, int, int]]) -> None:
        """Send the cells `spans` of `widget`: (row, first column, end column) each."""
        super().__init__([], spans, [])
        self._widget = widget

    def render_segments(self, console: Console) -> str:
        """Return the text and escape sequences to send to the terminal."""
        cells = self._widget.cells
        return _drawing_sequences(((first, y, cells(y, first, end)) for y, first, end in self.spans), console)


class FrugalCompositor(Compositor):
    """A Textual compositor whose partial updates send only the cells that changed."""

    def render_partial_update(self) -> ChopsUpdate | None:
        """Return the cells that changed since the last update; None if none did."""
        widget = self._filling_widget()
        if widget is not None and self._dirty_regions:
            spans = list(self._regions_to_spans(self._dirty_regions))
            self._dirty_regions.clear()
            return CellsUpdate(widget, spans)
        update = super().render_partial_update()
        return update and FrugalUpdate(update.chops, update.spans, update.chop_ends)

    def update_of(self, widget: Canvas, spans: list[tuple[int, int, int]]) -> CellsUpdate | None:
        """Return an update of the cells `spans` of `widget`: (row, first column, end column) each.

        None unless the widget fills the screen and nothing else waits to be drawn.
        """
        return (
            None
            if self._dirty_regions or self._filling_widget() is not widget
            else CellsUpdate(widget, spans)
        )

    def _filling_widget(self) -> Canvas | None:
        """Return the widget that fills the screen with nothing in front of it; None if there is none."""
        for widget, (region, clip) in self.visible_widgets.items():
            if region.width and region.height:
                if isinstance(widget, Canvas) and region == clip == self.size.region:
                    return widget
                break  # they come from front to back: one in front of the others does not fill it
        return None


_SPAN_BYTES = 12
"""Bytes that sending one more span of changed cells costs: a cursor move, sometimes a colour."""
_MOST_BYTES = 4
"""Bytes of a character in UTF-8, at most."""


def _run_changes(old: str, new: str, x: int, width: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges [first, end) of cells that differ between two text segments of the same style.

    Both segments begin at column `x` and are `width` cells wide.
    """
    if not is_narrow(old) or not is_narrow(new):
        yield x, x + width  # wide or combining characters: cells are not characters
        return
    for index, (before, after) in enumerate(zip(old, new, strict=True)):
        if before != after:
            yield x + index, x + index + 1


def changed_spans(old: Row, new: Row) -> Iterator[tuple[int, int]]:
    """Yield the ranges [first, end) of cells in which two rows of the same width differ.

    Rows whose text segments have the same styles and widths are compared segment by segment. Otherwise
    everything between the first and the last segment that differ counts as changed.
    """
    old_widths = [cell_width(text) for text, _ in old]
    new_widths = [cell_width(text) for text, _ in new]
    if old_widths == new_widths and [role for _, role in old] == [role for _, role in new]:
        x = 0
        for (before, _), (after, _), width in zip(old, new, new_widths, strict=True):
            if before != after:
                yield from _run_changes(before, after, x, width)
            x += width
        return
    common_runs, start = 0, 0
    while common_runs < min(len(old), len(new)) and old[common_runs] == new[common_runs]:
        start += new_widths[common_runs]
        common_runs += 1
    common_end, end = 0, sum(new_widths)
    most_changed = min(len(old), len(new)) - common_runs
    while common_end < most_changed and old[-1 - common_end] == new[-1 - common_end]:
        end -= new_widths[-1 - common_end]
        common_end += 1
    if end > start:
        yield start, end


def join_close_spans(spans: Iterator[tuple[int, int]], row: Row) -> Iterator[tuple[int, int]]:
    """Yield `spans`, with neighbours merged where sending the cells between them is cheaper than a new span.

    `spans` are ranges [first, end) of cells in `row`, in ascending order.
    """
    pending: tuple[int, int] | None = None
    text: str | None = None
    is_one_char_a_cell = True  # else cells are no places in the text, and the spans are merged
    for start, end in spans:
        if pending is None:
            pending = (start, end)
            continue
        first, last = pending
        # Fewer cells never cost more than a new span, whatever their characters.
        if start - last > _SPAN_BYTES // _MOST_BYTES:
            if text is None:
                text = "".join([part for part, _ in row])
                is_one_char_a_cell = is_narrow_row(row)
            if is_one_char_a_cell and len(text[last:start].encode()) > _SPAN_BYTES:
                yield pending
                first = start
        pending = (first, end)
    if pending is not None:
        yield pending


def is_narrow_row(row: Row) -> bool:
    """Return whether each character of a row takes one cell."""
    return is_narrow("".join([text for text, _ in row]))


class Canvas(Widget, can_focus=True):
    """Shows rows of styled text segments on the full screen."""

    DEFAULT_CSS = """
    Canvas { width: 1fr; height: 1fr; }
    """

    class Pointed(Message):
        """Posted when the left mouse button is pressed at a cell."""

        def __init__(self, x: int, y: int) -> None:
            """Store the cell: column `x` and row `y`, from 0."""
            super().__init__()
            self.x = x
            self.y = y

    class Wheeled(Message):
        """Posted when the mouse wheel is turned by one step; `direction` is +1 for down, -1 for up."""

        def __init__(self, direction: int) -> None:
            """Store the direction."""
            super().__init__()
            self.direction = direction

    def __init__(self, styles: RoleStyles) -> None:
        """Start without rows; `styles` has the style for each role of text, such as "title"."""
        super().__init__(id="canvas")
        self.role_styles = styles
        self._rows: list[Row] = []
        self._strips: dict[int, Strip] = {}
        self._ends: dict[int, list[int]] = {}
        """By row: the column after each segment; empty for a row with wide characters."""
        self._filters: Sequence[LineFilter] = ()
        """The application's filters of the styles in `_drawn_styles`."""
        self._drawn_styles: dict[str, Style] = {}

    @property
    def rows(self) -> Sequence[Row]:
        """The rows shown now."""
        return self._rows

    def restyle(self, styles: RoleStyles) -> None:
        """Draw everything again in `styles`, after a change of the theme."""
        self.role_styles = styles
        for cache in (self._strips, self._drawn_styles, self._ends):
            cache.clear()
        self.refresh()

    def show(self, rows: list[Row]) -> None:
        """Show `rows`; repaint only the cells that changed."""
        old, self._rows = self._rows, rows
        self._ends.clear()
        if len(old) != len(rows) or self.size.height != len(rows):
            self._strips.clear()
            if self.size:  # otherwise the first layout draws everything
                self.refresh()
            return
        spans: list[tuple[int, int, int]] = []
        for y, (before, after) in enumerate(zip(old, rows, strict=True)):
            if before != after:
                self._strips.pop(y, None)
                spans += [(y, a, b) for a, b in join_close_spans(changed_spans(before, after), after)]
        if spans and not self._draw_now(spans):
            self.refresh(*(Region(a, y, b - a, 1) for y, a, b in spans))

    def _draw_now(self, spans: list[tuple[int, int, int]]) -> bool:
        """Draw changed cells at once; return False where only Textual's own way draws all that has changed.

        That way takes three tasks and two wake-ups, and draws a sixtieth of a second later.
        """
        if not self.is_mounted or self._repaint_required:
            return False
        app, screen = self.app, self.screen
        compositor = screen._compositor  # noqa: SLF001 - there is no other way to it
        # What `Screen` itself asks before it draws.
        waits = screen._layout_required or screen._repaint_required or screen._dirty_widgets  # noqa: SLF001
        if waits or app._batch_count or app.screen is not screen:  # noqa: SLF001
            return False
        update = compositor.update_of(self, spans) if isinstance(compositor, FrugalCompositor) else None
        if update is not None:
            app._display(screen, update)  # noqa: SLF001 - as `Screen` itself does
        return update is not None

    def cells(self, y: int, first: int, end: int) -> Iterator[Segment]:
        """Yield the cells [`first`, `end`) of row `y` as they are drawn on the terminal."""
        row: Row = self._rows[y] if y < len(self._rows) else []
        ends = self._ends.get(y)
        if ends is None:
            self._follow_filters()  # once for each row after a `show`: filters change with the theme only
            narrow = is_narrow_row(row)
            ends = self._ends[y] = list(accumulate(len(text) for text, _ in row)) if narrow else []
        if row and not ends:
            yield from self.render_lines(Region(first, y, end - first, 1))[0]
            return
        text_of = self.role_styles.text
        for index in range(bisect_right(ends, first), len(row)):
            text, role = row[index]
            after = ends[index]
            x = after - len(text)
            if x >= end:
                return
            visible = text if first <= x and after <= end else text[max(0, first - x) : end - x]
            yield Segment(text_of(visible, role), self._drawn_styles.get(role) or self._filtered_style(role))
        drawn = max(first, ends[-1] if ends else 0)
        if drawn < end:
            yield Segment(" " * (end - drawn), self._drawn_styles.get("text") or self._filtered_style("text"))

    def _filtered_style(self, role: str) -> Style:
        """Return the style of a role after the application's filters, which convert colours."""
        segments = [Segment(" ", self.role_styles[role])]
        for line_filter in self._filters:
            segments = line_filter.apply(segments, self.background_colors[1])
        style = self._drawn_styles[role] = segments[0].style or Style.null()
        return style

    def _follow_filters(self) -> None:
        """Forget the filtered styles if the application has other filters now."""
        filters = self.get_line_filters()
        if filters != self._filters:
            self._filters = filters
            self._drawn_styles.clear()

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the strips of a rectangle; a canvas has neither border nor padding nor opacity."""
        filters, background = self.get_line_filters(), self.background_colors[1]
        strips = [self.render_line(y) for y in crop.line_range]
        for line_filter in filters:
            strips = [strip.apply_filter(line_filter, background) for strip in strips]
        first, end = crop.column_span
        return (
            strips if (first, end) == (0, self.size.width) else [strip.crop(first, end) for strip in strips]
        )

    def render_line(self, y: int) -> Strip:
        """Return row `y` as a Textual strip; beyond the last row, an empty one."""
        strip, width = self._strips.get(y), self.size.width
        if strip is None or strip.cell_length != width:
            row: Row = self._rows[y] if y < len(self._rows) else []
            styles = self.role_styles
            segments = [Segment(styles.text(text, role), styles[role]) for text, role in row]
            strip = Strip(segments).adjust_cell_length(width, self.role_styles["text"])
            self._strips[y] = strip
        return strip

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Post `Pointed` if the left button was pressed."""
        if event.button == 1:
            self.post_message(self.Pointed(event.x, event.y))

    def on_mouse_scroll_down(self, _: events.MouseScrollDown) -> None:
        """Post `Wheeled` with the direction down."""
        self.post_message(self.Wheeled(1))

    def on_mouse_scroll_up(self, _: events.MouseScrollUp) -> None:
        """Post `Wheeled` with the direction up."""
        self.post_message(self.Wheeled(-1))
