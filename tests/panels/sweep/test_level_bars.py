"""A sweep of a single level has bars instead of curves with one point."""

from __future__ import annotations

from sparktop.model.sweep import CurveLine, CurvePlot, CurvePoint, Value
from sparktop.panels.parts.figures import part_role
from sparktop.panels.parts.text import row_text, row_width
from sparktop.panels.sweep.curves import plots_rows


def plot(title: str, *means: float, at: tuple[int, ...] = (4,), more: bool = True) -> CurvePlot:
    values = [Value(mean, 0.9 * mean, 1.1 * mean) for mean in means]
    lines = tuple(
        CurveLine(f"spark-{index}", tuple(CurvePoint(one, value) for one in at))
        for index, value in enumerate(values)
    )
    return CurvePlot(title, title, "tok/s", "words", more, lines)


def test_each_target_has_a_bar_with_its_value_and_interval() -> None:
    """All bars of a metric are on the scale that its title names; the longest is the largest value."""
    plots = (plot("Decode", 1500.0, 3000.0), plot("TTFT", 0.0, 0.0, more=False))
    rows = plots_rows(plots, 90, 8)
    text = [row_text(row) for row in rows]
    assert len(rows) == 8
    assert {row_width(row) for row in rows} == {90}
    assert "Decode in tok/s" in text[0]
    assert "0 to 3k, higher is better" in text[0]
    assert "A spark-0" in text[1]
    assert "1,500 (95 %: 1,350 to 1,650)" in text[1]
    assert abs(2 * text[1].count("█") - text[2].count("█")) <= 1
    assert {role for _, role in rows[1]} >= {part_role(0)}
    assert sum(row.count("█") for row in text[3:]) == 0, "nothing is measured as 0"


def test_no_size_cuts_a_value() -> None:
    """The bar goes before the value; metrics that do not fit are left out whole."""
    plots = [plot(title, 1234.5, 2.5, 17.0) for title in ("Decode", "Prefill", "TTFT")]
    for width in range(56, 200, 7):
        for height in range(4, 40, 3):
            rows = plots_rows(plots, width, height)
            text = "\n".join(row_text(row) for row in rows)
            assert len(rows) == height
            assert {row_width(row) for row in rows} == {width}
            assert "…" not in text
            assert text.count("1,234 (95 %: 1,111 to 1,358)") == text.count(" in tok/s ") >= 1
