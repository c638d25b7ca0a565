"""Make the truth table: figures that sparktop shows, beside independent truths, with the error of each.

Each module of `benchmarks/truths/` that defines `figures(*, short)` is one area. The short form takes seconds
per area and is a test (`tests/benchmarks/test_truth_table.py`); the long form has more seeds and conditions.

usage: truth_table.py [--short] [--only AREA …] [--write]

With --write, the table is written to benchmarks/README.md. Exit code 1 if a row misses its limit.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import tables
from tables import Figure

HEADS = ("area", "figure", "truth", "shown", "error", "allowed", "")
AREAS = tuple(sorted(path.stem for path in (Path(__file__).resolve().parent / "truths").glob("*.py")))


def figures(area: str, *, short: bool) -> Iterator[Figure]:
    """Measure the figures of one area."""
    yield from import_module(f"truths.{area}").figures(short=short)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print the table; return 1 if a row misses its limit, else 0."""
    parser = argparse.ArgumentParser(description="figure, truth, shown, error")
    parser.add_argument("--short", action="store_true", help="fewer seeds and conditions")
    parser.add_argument("--only", nargs="+", choices=AREAS, default=AREAS, metavar="AREA")
    parser.add_argument("--write", action="store_true", help="put the table into benchmarks/README.md")
    options = parser.parse_args(arguments)
    rows: list[Figure] = []
    for area in options.only:
        for row in figures(area, short=options.short):
            rows.append(row)
            word = "ok  " if row.holds else "MISS"
            print(f"{word} {row.area}: {row.name}: {row.truth} / {row.shown}", file=sys.stderr, flush=True)
    lines = tables.table(HEADS, (row.cells for row in rows))
    tables.publish("truth_table.py", lines, write=options.write)
    return 0 if all(row.holds for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
