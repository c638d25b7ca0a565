"""Results on unlike loads stand side by side without winners; equal tables are printed once."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from sparktop.sweep.compare.compare import compare
from sparktop.sweep.compare.series import Load, Series
from sparktop.sweep.formats.report import comparison_json, comparison_markdown
from sparktop.sweep.formats.written import comparison_report
from sparktop.sweep.terms.statistics import value_of
from tests.sweep.made_results import made_series

SLOW: Mapping[int, tuple[float, ...]] = {1: (10.0, 10.1, 10.2), 4: (40.0, 40.1, 40.2)}
FAST: Mapping[int, tuple[float, ...]] = {1: (30.0, 30.1, 30.2), 4: (20.0, 20.1, 20.2)}


def of_lengths(series: Series, pp: int, tg: int) -> Series:
    """Return a series as if its prompts had `pp` tokens and its answers `tg`."""
    levels = (replace(one, load=Load(one.load.point, pp, tg)) for one in series.levels)
    return replace(series, levels=tuple(levels))


def pair(pp: int = 100) -> list[Series]:
    """Return two series that differ clearly, and cross; the second with prompts of `pp` tokens."""
    return [made_series("apple", SLOW), of_lengths(made_series("berry", FAST), pp, 4)]


def winners_of(series: list[Series]) -> list[object]:
    """Return the winners in JSON, a row each."""
    return [row["winner"] for row in json.loads(comparison_json(compare(series), series))["rows"]]


def test_json_has_values_and_no_winner() -> None:
    """All that names a best one is null or empty, and nothing crosses over; alike loads have both."""
    assert winners_of(pair()) == ["berry", "apple"]
    series = pair(1024)
    found = json.loads(comparison_json(compare(series), series))
    for row in found["rows"]:
        assert (row["winner"], row["ahead"], row["percent"], row["significant"]) == (None, None, None, None)
        assert row["beats"] == []
        assert set(row["values"]) == {"apple", "berry"}
    assert found["crossovers"] == []
    assert len(found["rows"]) == 2
    assert json.loads(comparison_json(compare(pair()), pair()))["crossovers"]


@pytest.mark.parametrize("form", ["md", "html"])
def test_tables_have_values_and_no_winner(form: str) -> None:
    """The cells of winners have a dash, and no heading or note says which one is better."""
    series = pair(1024)
    text = comparison_report(compare(series), series, form)
    assert "Not the same load" in text
    for value in ("10.1", "30.1", "40.1", "20.1"):
        assert value in text
    for word in ("next best", "Crossovers", "a winner is", "ahead", "best at", "not certain", "%)"):
        assert word not in text
    if form == "md":
        rows = [line for line in text.splitlines() if line.startswith("| c")]
        assert [line.split("|")[-2].strip() for line in rows] == ["–", "–"]
    alike = comparison_report(compare(pair()), pair(), form)
    assert "next best" in alike
    assert "Crossovers" in alike


def with_metrics(series: Series, *names: str, plus: float = 0.0) -> Series:
    """Return a series with its first metric under other names; the last one is larger by `plus`."""
    levels = []
    for level in series.levels:
        (figure,) = level.figures.values()
        figures = dict.fromkeys(names, figure)
        values = tuple(value + plus for value in figure.runs)
        figures[names[-1]] = value_of(figure.mean + plus, values)
        levels.append(replace(level, figures=figures))
    return replace(series, levels=tuple(levels))


def test_a_table_that_repeats_another_is_a_line() -> None:
    """Equal figures of TTFT and first answer are printed once; a difference of a millisecond counts."""
    names = ("ttft_ms", "first_answer_ms")
    same = [with_metrics(one, *names) for one in pair()]
    text = comparison_markdown(compare(same), same)
    assert text.count("### TTFT (ms") == 1
    assert "First answer: the same figures as TTFT." in text
    assert "### First answer" not in text
    apart = [with_metrics(one, *names, plus=1.0) for one in pair()]
    text = comparison_markdown(compare(apart), apart)
    assert "### First answer" in text
    assert "the same figures" not in text
    hidden = [with_metrics(one, *names, plus=0.001) for one in pair()]
    assert "First answer: the same figures as TTFT." in comparison_markdown(compare(hidden), hidden)
