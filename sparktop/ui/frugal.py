"""Updates of the terminal that send only what changed.

Textual's own partial update sends a changed row from the left edge of its widget on, once for each changed
stretch in it, and sets and resets both colours around each run; on the overview at 200x50 three fifths of all
bytes were colours. Here a stretch begins at its first changed cell, and a colour is sent only when it
changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from rich.color import ColorSystem
from rich.console import Console
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
"""Rich's attributes with their parameters of the SGR sequence (ECMA-48)."""
_Parts = tuple[str, str, str]


@lru_cache(maxsize=1024)
def _parts(style: Style, system: ColorSystem) -> _Parts:
    """Return attributes, foreground and background of a style as SGR parameters."""
    attributes = ";".join(code for name, code in _ATTRIBUTES if getattr(style, name))
    foreground = "" if style.color is None else ";".join(style.color.downgrade(system).get_ansi_codes())
    background = ""
    if style.bgcolor is not None:
        background = ";".join(style.bgcolor.downgrade(system).get_ansi_codes(foreground=False))
    return attributes, foreground, background


def _change(before: _Parts | None, after: _Parts) -> str:
    """Return the sequence that changes one style to another; an attribute can only end with a reset."""
    if before == after:
        return ""
    fresh = before is None or before[0] != after[0]
    fresh = fresh or any(had and not has for had, has in zip(before or (), after, strict=False))
    if fresh or before is None:
        return f"\x1b[{';'.join(['0', *(part for part in after if part)])}m"
    return f"\x1b[{';'.join(new for old, new in zip(before, after, strict=True) if old != new)}m"


class FrugalUpdate(ChopsUpdate):
    """Changed stretches of rows, each from its first to its last cell."""

    def _pieces(self) -> Iterator[tuple[int, int, Strip]]:
        """Yield (x, y, cells) of each stretch."""
        for y, first, end in self.spans:
            for chop_end, (x, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=False):
                if strip is None or x >= end or chop_end <= first:
                    continue
                yield max(x, first), y, strip.crop(max(0, first - x), min(chop_end, end) - x)

    def render_segments(self, console: Console) -> str:
        """Return the escape sequences and text for the terminal."""
        system = console._color_system or ColorSystem.TRUECOLOR  # noqa: SLF001 - as Textual's own updates do
        out: list[str] = []
        current: _Parts | None = None
        for x, y, strip in self._pieces():
            out.append(f"\x1b[{y + 1};{x + 1}H")
            for text, style, control in strip:
                if style is not None and style.link:
                    # A link is a sequence of its own; Rich writes it and resets after it.
                    out.append(style.render(text, color_system=system))
                    current = None
                    continue
                if not control:
                    wanted = _parts(style or Style.null(), system)
                    out.append(_change(current, wanted))
                    current = wanted
                out.append(text)
        out.append("\x1b[0m")
        return "".join(out)


class FrugalCompositor(Compositor):
    """A compositor whose partial updates are `FrugalUpdate`s."""

    def render_partial_update(self) -> ChopsUpdate | None:
        """Return what changed since the last update; None if nothing did."""
        update = super().render_partial_update()
        return update and FrugalUpdate(update.chops, update.spans, update.chop_ends)
