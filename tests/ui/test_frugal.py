"""What is sent to the terminal gives the picture that Textual's own updates would give."""

from __future__ import annotations

import itertools
import re

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate
from textual.strip import Strip

from sparktop.ui.canvas import FrugalUpdate

WIDTH, HEIGHT = 12, 3
CONSOLE = Console(color_system="truecolor", force_terminal=True)
STYLES = st.builds(
    Style,
    color=st.sampled_from(["#ff0000", "#00ff00", "default", "bright_blue", None]),
    bgcolor=st.sampled_from(["#000000", "default", None]),
    bold=st.sampled_from([True, None]),
    underline=st.sampled_from([True, None]),
)
TOKEN = re.compile(r"\x1b\[([0-9;]*)([A-Za-z])|(.)", re.DOTALL)

Cell = tuple[str, frozenset[tuple[str, str]]]


class Screen:
    """A terminal that understands cursor moves and SGR, well enough to compare two streams."""

    def __init__(self) -> None:
        """Start blank, the cursor at the top left."""
        self.cells: dict[tuple[int, int], Cell] = {}
        self._x = self._y = 0
        self._style: dict[str, str] = {}

    def feed(self, data: str) -> None:
        """Interpret what is written to the terminal."""
        for parameters, final, char in TOKEN.findall(data):
            if final == "H":
                row, column = (int(part) for part in parameters.split(";"))
                self._y, self._x = row - 1, column - 1
            elif final == "m":
                self._select(parameters)
            elif char not in {"\n", "\r"}:
                self.cells[self._x, self._y] = (char, frozenset(self._style.items()))
                self._x += 1

    def _select(self, parameters: str) -> None:
        codes = (parameters or "0").split(";")
        while codes:
            code = codes.pop(0)
            if code == "0":
                self._style = {}
            elif code in {"38", "48"}:
                self._style[code] = ";".join(codes[:4])
                del codes[:4]
            elif code in {"39", "49"}:
                self._style.pop("38" if code == "39" else "48", None)
            elif code.startswith("9") or len(code) == 2:
                self._style["38"] = code
            else:
                self._style[code] = "on"


@st.composite
def lines(draw: st.DrawFn) -> Strip:
    """Draw a strip of WIDTH cells in a few styles."""
    cuts = sorted(draw(st.sets(st.integers(1, WIDTH - 1), max_size=3)))
    edges = [0, *cuts, WIDTH]
    text = draw(st.text(alphabet="ab⣿ ", min_size=WIDTH, max_size=WIDTH))
    return Strip([Segment(text[a:b], draw(STYLES)) for a, b in itertools.pairwise(edges)])


@given(
    st.lists(lines(), min_size=HEIGHT, max_size=HEIGHT),
    st.lists(
        st.tuples(st.integers(0, HEIGHT - 1), st.integers(0, WIDTH - 1), st.integers(1, WIDTH)),
        min_size=1,
        max_size=4,
    ),
)
def test_the_changed_cells_end_up_as_textual_would_leave_them(
    strips: list[Strip], places: list[tuple[int, int, int]]
) -> None:
    """In every changed cell both ways leave the same character in one style; no other cell is touched."""
    spans = sorted((y, x, min(WIDTH, x + width)) for y, x, width in places)
    chops = [{0: strip} for strip in strips]
    ends = [[WIDTH]] * HEIGHT
    ours, theirs = Screen(), Screen()
    ours.feed(FrugalUpdate(chops, spans, ends).render_segments(CONSOLE))
    theirs.feed(ChopsUpdate(chops, spans, ends).render_segments(CONSOLE))
    changed = {(x, y) for y, first, end in spans for x in range(first, end)}
    assert set(ours.cells) == changed
    assert all(ours.cells[cell] == theirs.cells[cell] for cell in changed)
