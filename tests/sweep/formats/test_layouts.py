"""Layouts of published tables: the references' own figures in them, and runs of every preset."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparktop.report.document.document import Grid, markdown_cell
from sparktop.sweep.compare.compare import compare
from sparktop.sweep.compare.series import Series, load_reference, published_series
from sparktop.sweep.formats import tables as layouts
from tests.sweep.made_results import made_series

pytestmark = pytest.mark.long


THROUGHPUT = ("prefill_tps", "decode_tps", "peak_tps")
SERVING = ("total_tps", "output_tps", "ttft_ms", "itl_ms", "e2e_ms")


def series(reference: str, name: str) -> Series:
    (found,) = [one for one in published_series(load_reference(reference)) if one.name == name]
    return found


def cells(grid: Grid, row: int) -> list[str]:
    return [markdown_cell(cell) for cell in grid.rows[row]]


def topology_table() -> Grid:
    reference = load_reference("spark-topologies-2026-03")
    found = compare(published_series(reference), table=reference.winner_vs)
    return layouts.winners(found, "decode_tps", published_series(reference))


def spread_table() -> Grid:
    topology = "spark-topologies-2026-03"
    return layouts.spread(series(topology, "simple-shuffle"), series(topology, "least-busy"))


def recipe_table() -> Grid:
    recipe = series("gx10-concurrency-first", "gx10-patched")
    return layouts.by_concurrency(recipe, THROUGHPUT, "Performance")


def others_table() -> Grid:
    recipes = published_series(load_reference("gx10-concurrency-first"))
    found = compare(recipes, baseline="gx10-patched")
    return layouts.versus(found, "decode_tps", ["gx10-patched"], [one.name for one in recipes[1:]])


def service_table() -> Grid:
    return layouts.by_concurrency(series("spark-vllm-blog", "spark-tuned"), SERVING, "Serving")


TABLES: list[tuple[str, Callable[[], Grid], int, list[str]]] = [
    (
        "topologies",
        topology_table,
        7,
        ["c64", "315.2", "471.8", "567.9", "338.4", "`simple-shuffle` (+20 %)"],
    ),
    ("spread", spread_table, 2, ["c64", "48.02", "64.11", "1.3×"]),
    ("recipe", recipe_table, 11, ["c256", "5,391", "285.8", "1,024"]),
    # The name of the row before is not repeated.
    ("others", others_table, 4, ["", "c256", "259.5", "285.8 (+10.1 %)"]),
    ("service", service_table, 4, ["c64", "4,158", "444.0", "322", "131.0", "16,400"]),
]
"""Each published table: how it is made, its rows, its last row."""


@pytest.mark.parametrize(
    ("make", "rows", "last"), [one[1:] for one in TABLES], ids=[one[0] for one in TABLES]
)
def test_a_published_table_comes_out_of_its_layout(
    make: Callable[[], Grid], rows: int, last: list[str]
) -> None:
    """Its rows in its order, its figures as they were printed."""
    grid = make()
    assert len(grid.rows) == rows
    assert cells(grid, -1) == last
    assert all(len(row) == len(grid.heads) for row in grid.rows)


def test_an_untested_row_beside_tested_ones_is_marked() -> None:
    """A star for a single run, words for no difference, a percentage for a difference; none leads by ±0 %."""
    runs, near = (100.0, 101.0, 102.0), (101.0, 102.0, 103.0)
    first = made_series("a", {1: (150.0, 151.0), 2: near, 4: (150.0,), 8: (100.2,)})
    both = [first, made_series("b", {1: runs, 2: runs, 4: runs, 8: (100.0,)})]
    table = layouts.winners(compare(both), "decode_tps", both)
    assert [cells(table, number)[-1] for number in range(4)] == [
        "`a` (+49 %)",
        "no clear difference (`a` +1 % against `b`)",
        "`a` ahead (+49 %)*",
        "±0 %",
    ]
