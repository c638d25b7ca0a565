"""Several curves in one cell: no curve hides another one, and each has its name at its end."""

from __future__ import annotations

from sparktop.model.sweep import CurveLine, CurvePlot, CurvePoint, LimitLine, Value
from sparktop.panels.parts.figures import part_role
from sparktop.panels.parts.text import row_text
from sparktop.panels.sweep.curves import curve_rows


def line(name: str, **values: float) -> CurveLine:
    points = ((int(at.removeprefix("c")), value) for at, value in values.items())
    return CurveLine(name, tuple(CurvePoint(at, Value(value)) for at, value in points))


def plot(*lines: CurveLine, limits: tuple[LimitLine, ...] = (), more_is_better: bool = True) -> CurvePlot:
    return CurvePlot("decode_tps", "Decode", "tok/s", "tokens", more_is_better, lines, limits)


def test_points_in_one_cell_have_the_letter_of_the_best_line() -> None:
    """No letters stand beside each other where curves meet on their way, whether more or less is better."""
    lines = (line("x", c1=10.0, c2=90.0), line("y", c1=10.0, c2=20.0))
    for better, more in (("A", True), ("B", False)):
        shown = curve_rows(plot(*lines, more_is_better=more), 80, 20)[1:-1]
        cells = "".join(row_text(row)[7:75] for row in shown)
        assert "AB" not in cells
        assert "BA" not in cells
        assert cells.count(better) == 2


def test_lines_that_end_in_one_cell_have_all_their_letters_there() -> None:
    """Else a target whose curve is under another one would have no letter in the plot at all."""
    lines = [line(name, c1=10.0 + at, c16=60.0) for at, name in enumerate(("proxy", "shuffle", "spark-a"))]
    for width, height in ((76, 7), (56, 8), (96, 14)):
        rows = curve_rows(plot(*lines), width, height)[1:-1]
        (row,) = [row for row in rows if "A=B=C" in row_text(row)]
        for at, letter in enumerate("ABC"):
            assert any(letter in text and role == part_role(at) for text, role in row)
    many = [line(f"t{at}", c1=10.0, c16=60.0) for at in range(7)]
    assert any("A=B+5" in row_text(row) for row in curve_rows(plot(*many), 80, 12))
    apart = (line("x", c1=10.0, c16=90.0), line("y", c1=10.0, c16=20.0))
    assert not any("=" in row_text(row) for row in curve_rows(plot(*apart), 80, 12))


def test_each_name_stands_at_the_end_of_its_line() -> None:
    """Names are at the right of all curves, in the order of their ends, and never on a curve."""
    lines = [line(f"name-{index}", c1=10.0, c16=90.0 + index) for index in range(6)]
    for width, height in ((76, 8), (76, 20), (110, 12)):
        rows = [row_text(row) for row in curve_rows(plot(*lines), width, height)[1:-1]]
        named = [row[-10:].split() for row in rows if "name-" in row]
        assert named == [[letter, f"name-{index}"] for index, letter in reversed([*enumerate("ABCDEF")])]
        assert all(not row[-11:].strip("ABCDEFname-012345 ") for row in rows)
    narrow = "".join(row_text(row) for row in curve_rows(plot(*lines), 34, 12))
    assert "name-" not in narrow, "the legend has them"


def test_every_target_has_its_name_at_80_by_24() -> None:
    """Five rows of plot are enough for three names of curves that lie close to each other."""
    lines = (
        line("proxy", c1=56.0, c4=117.0, c16=240.0, c48=408.0),
        line("simple-shuffle", c1=55.0, c4=147.0, c16=285.0, c48=525.0),
        line("spark-a", c1=56.3, c4=116.0, c16=236.0, c48=410.0),
    )
    text = "\n".join(row_text(row) for row in curve_rows(plot(*lines), 76, 7))
    assert all(name in text for name in ("proxy", "simple-shuffle", "spark-a"))


def test_a_limit_for_one_request_is_no_line_across_the_plot() -> None:
    """The memory bandwidth limits a single request: at c = 16 the line would be wrong."""
    limit = LimitLine("decode_tps", "memory bandwidth allows one request 50 tok/s", 50.0, concurrency=1)
    rows = [row_text(row) for row in curve_rows(plot(line("x", c1=10.0, c16=90.0), limits=(limit,)), 80, 20)]
    (drawn,) = [row for row in rows if "┄" in row]
    assert 1 < drawn.count("┄") < 10
    assert drawn.rindex("┄") < 30


ALLOWED = LimitLine("decode_tps", "memory allows 70", 70.0, concurrency=1, short="one request: at most 70")


def test_a_limit_for_one_request_has_its_label_beside_it() -> None:
    """A short line without words would be a riddle; the label stands in free cells only."""
    drawn = plot(line("x", c1=10.0, c16=90.0), limits=(ALLOWED,))
    rows = [row_text(row) for row in curve_rows(drawn, 80, 20)]
    assert any(" one request: at most 70" in row for row in rows)
