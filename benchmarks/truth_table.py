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

from truths.figure import Figure

HERE = Path(__file__).resolve().parent
MARKS = ("<!-- truth_table.py: begin -->", "<!-- truth_table.py: end -->")
_NOT_AREAS = frozenset({"figure", "__init__"})


def areas() -> list[str]:
    """Return the names of all areas, in alphabetical order."""
    return sorted(
        path.stem
        for path in (HERE / "truths").glob("*.py")
        if path.stem not in _NOT_AREAS and "def figures(" in path.read_text(encoding="utf-8")
    )


def figures(area: str, *, short: bool) -> Iterator[Figure]:
    """Measure the figures of one area."""
    yield from import_module(f"truths.{area}").figures(short=short)


def table(rows: Sequence[Figure]) -> str:
    """Return the Markdown table of measured figures."""
    lines = ["| area | figure | truth | shown | error | allowed | |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        cells = (
            row.area,
            row.name,
            row.truth,
            row.shown,
            row.error,
            row.limit,
            "✓" if row.holds else "**✗**",
        )
        lines.append(f"| {' | '.join(cell.replace('|', '·') for cell in cells)} |")
    return "\n".join(lines)


def write(text: str, readme: Path = HERE / "README.md") -> None:
    """Write the table between its marks in the README."""
    page = readme.read_text(encoding="utf-8")
    head, rest = page.split(MARKS[0])
    _, tail = rest.split(MARKS[1])
    readme.write_text(f"{head}{MARKS[0]}\n\n{text}\n\n{MARKS[1]}{tail}", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print the table; return 1 if a row misses its limit, else 0."""
    parser = argparse.ArgumentParser(description="figure, truth, shown, error")
    parser.add_argument("--short", action="store_true", help="fewer seeds and conditions")
    parser.add_argument("--only", nargs="+", choices=areas(), default=areas(), metavar="AREA")
    parser.add_argument("--write", action="store_true", help="put the table into benchmarks/README.md")
    options = parser.parse_args(arguments)
    rows: list[Figure] = []
    for area in options.only:
        for row in figures(area, short=options.short):
            rows.append(row)
            print(
                f"{'ok  ' if row.holds else 'MISS'} {row.area}: {row.name}: {row.truth} / {row.shown}",
                flush=True,
            )
    text = table(rows)
    print(text)
    if options.write:
        write(text)
    return 0 if all(row.holds for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
