"""Two stacked graphs around a centre line."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.graphics.braille import StackedRow, opposed, stacked, upside_down

Reader = Callable[[Sequence[str]], list[list[bool]]]
VALUES = st.lists(st.one_of(st.none(), st.floats(0, 10)), min_size=1, max_size=30)


def texts(rows: Sequence[StackedRow]) -> list[str]:
    return ["".join(text for text, _ in row) for row in rows]


@settings(max_examples=60, deadline=None)
@given(VALUES, VALUES, st.integers(1, 5), st.integers(0, 1))
def test_upside_down_every_dot_is_where_it_was_from_the_other_side(
    lower: list[float | None], upper: list[float | None], height: int, end: int
) -> None:
    """Turning a graph upside down reverses the dots of each column; doing it twice restores the graph."""
    rows = stacked(lower, upper, 12, height, 10.0, end_slot=end)
    turned = upside_down(rows)
    assert upside_down(turned) == rows
    for row, other in zip(rows, reversed(turned), strict=True):
        assert [layer for _, layer in row] == [layer for _, layer in other]
    before, after = _dots(texts(rows)), _dots(texts(turned))
    assert [column[::-1] for column in before] == after


def _dots(rows: Sequence[str]) -> list[list[bool]]:
    """Return the dots of each column of a picture from the bottom up, independently of the tested code."""
    left, right = (0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08)
    columns: list[list[bool]] = [[] for _ in range(2 * len(rows[0]))]
    for row in reversed(rows):
        for index, char in enumerate(row):
            mask = 0 if char == " " else ord(char) - 0x2800
            columns[2 * index] += [bool(mask & bit) for bit in left]
            columns[2 * index + 1] += [bool(mask & bit) for bit in right]
    return columns


def test_both_halves_have_one_scale_and_stand_at_the_centre(read_dots: Reader) -> None:
    """The same load has the same number of dots above and below the centre line."""
    above, below = opposed(([4.0, 8.0], [0.0, 0.0]), ([8.0, 2.0], [0.0, 0.0]), 1, 2, 8.0)
    assert [sum(column) for column in read_dots(texts(above))] == [4, 8]
    down = read_dots(texts(below))
    assert [sum(column) for column in down] == [8, 2]
    assert down[1] == [False] * 6 + [True] * 2


def test_what_waits_lies_beyond_what_runs_on_both_sides() -> None:
    """On both sides running requests are next to the line and waiting ones beyond, in another texture."""
    above, below = opposed(([4.0, 4.0], [4.0, 4.0]), ([4.0, 4.0], [4.0, 4.0]), 1, 2, 8.0)
    assert [row[0][1] for row in above] == [1, 0]
    assert [row[0][1] for row in below] == [0, 1]
    assert above[0][0][0] != above[1][0][0]


def test_a_gap_has_no_dot_on_its_side_only() -> None:
    """If one side is unknown, the other is drawn all the same."""
    above, below = opposed(([None, None], [None, None]), ([1.0, 1.0], [0.0, 0.0]), 1, 1, 4.0)
    assert texts(above) == [" "]
    assert texts(below) != [" "]
