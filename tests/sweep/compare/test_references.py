"""Published tables as they are shipped."""

from __future__ import annotations

import pytest

from sparktop.errors import UsageError
from sparktop.model.load import concurrency_point
from sparktop.sweep.compare.series import Load, load_reference
from sparktop.sweep.terms.definitions import METRICS

NAMES = ["gx10-concurrency-first", "spark-dgx-benchmark", "spark-topologies-2026-03", "spark-vllm-blog"]


@pytest.mark.parametrize("name", NAMES)
def test_a_reference_names_its_source_and_means_its_figures(name: str) -> None:
    """Every figure is a metric that has a definition of that source; every level has one."""
    reference = load_reference(name)
    assert reference.name == name
    assert reference.source
    assert len({one.name for one in reference.series}) == len(reference.series)
    for series in reference.series:
        assert series.metrics() <= set(METRICS)
        assert series.metrics() <= set(series.definitions)
        assert all(level.figures for level in series.levels)


@pytest.mark.parametrize(
    ("name", "target", "load", "metric", "value"),
    [
        (
            "spark-topologies-2026-03",
            "simple-shuffle",
            Load(concurrency_point(64), 1024, 128),
            "decode_tps",
            567.9,
        ),
        ("gx10-concurrency-first", "gx10-patched", Load(concurrency_point(256)), "peak_tps", 1024),
        ("spark-dgx-benchmark", "spark-interactive", Load(concurrency_point(1), 105, 256), "e2e_ms", 8030),
        ("spark-vllm-blog", "spark-tuned", Load(concurrency_point(64)), "e2e_ms", 16_400),
    ],
)
def test_figures_of_the_tables(name: str, target: str, load: Load, metric: str, value: float) -> None:
    """One of each table, as it was published."""
    (series,) = [one for one in load_reference(name).series if one.name == target]
    level = series.at(load)
    assert level is not None
    assert level.figures[metric].mean == value


def test_published_spreads_and_ranges_are_kept() -> None:
    """A standard deviation does not become runs, and an estimate stays a range."""
    (least_busy,) = [one for one in load_reference(NAMES[2]).series if one.name == "least-busy"]
    figure = least_busy.levels[-1].figures["decode_tps"]
    assert (figure.std, figure.runs) == (64.11, ())
    (other,) = [one for one in load_reference(NAMES[1]).series if one.name == "h100-sxm-estimated"]
    assert other.levels[0].figures["output_tps"].span == (80, 120)


def test_a_wrong_name_is_one_line_with_the_right_ones() -> None:
    """The nearest where one is near, else all."""
    with pytest.raises(UsageError, match="did you mean 'spark-vllm-blog'"):
        load_reference("ref:spark-vllm-blogg")
    with pytest.raises(UsageError, match=r"known: gx10-concurrency-first, .*--list"):
        load_reference("ref:\x1b[31m")
