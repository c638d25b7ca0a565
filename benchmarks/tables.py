"""Tables of the studies: how each is made from runs in several processes, and written into README.md."""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import TypeVar

README = Path(__file__).resolve().parent / "README.md"
NICE = 10
Task = TypeVar("Task")
Result = TypeVar("Result")


def options(doc: str | None, *, runs: int, seed: int = 0) -> argparse.ArgumentParser:
    """Return a parser for what every study has: `--runs`, `--seed` and `--write`."""
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=runs, help="of each row (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=seed, help="the first one (default: %(default)s)")
    parser.add_argument("--write", action="store_true", help="put the table into benchmarks/README.md")
    return parser


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Return a Markdown table as lines."""
    lines = [heads, ["---"] * len(heads), *rows]
    return [f"| {' | '.join(str(cell).replace('|', '·') for cell in cells)} |" for cells in lines]


def publish(name: str, lines: Sequence[str], *, write: bool, readme: Path = README) -> None:
    """Print a table; with `write`, also put it between the marks `name` of the README."""
    text = "\n".join(lines)
    print(text)
    if not write:
        return
    begin, end = (f"<!-- {name}: {word} -->" for word in ("begin", "end"))
    head, rest = readme.read_text(encoding="utf-8").split(begin)
    _, tail = rest.split(end)
    readme.write_text(f"{head}{begin}\n\n{text}\n\n{end}{tail}", encoding="utf-8")


def in_processes(
    function: Callable[[Task], Result], tasks: Iterable[Task], processes: int = 2
) -> Iterator[Result]:
    """Yield the results of `function` in the order of its tasks, made by processes of low priority."""
    with multiprocessing.get_context("spawn").Pool(processes, os.nice, (NICE,)) as pool:
        yield from pool.imap(function, tasks, chunksize=1)


def share(hits: int, runs: int) -> str:
    """Return "hits of runs" with the 95 % interval of the share in percent (Wilson, JASA 22, 1927)."""
    if not runs:
        return "–"
    z, part = NormalDist().inv_cdf(0.975), hits / runs
    middle = (part + z * z / (2 * runs)) / (1 + z * z / runs)
    half = z * math.sqrt(part * (1 - part) / runs + (z / (2 * runs)) ** 2) / (1 + z * z / runs)
    return f"{hits} of {runs} ({100 * max(0.0, middle - half):.1f}–{100 * min(1.0, middle + half):.1f} %)"


@dataclass(frozen=True, slots=True)
class Figure:
    """A row of the truth table: a figure that sparktop shows, beside a truth that shares no code with it."""

    area: str
    """The part of the product: "tokens", "balance", "compare", "watching"."""
    name: str
    """Which figure under which condition, for instance "decode tok/s, hidden thinking"."""
    truth: str
    """The true value with its unit."""
    shown: str
    """The value that sparktop shows, `–` where it shows none on purpose."""
    error: str
    """The difference in the figure's own terms: "0.3 %", "0 of 100 runs"."""
    limit: str
    """The largest error allowed, or the behaviour required."""
    holds: bool
    """True if the error is within the limit."""

    @property
    def cells(self) -> tuple[str, ...]:
        """The row's cells in Markdown."""
        mark = "✓" if self.holds else "**✗**"
        return (self.area, self.name, self.truth, self.shown, self.error, self.limit, mark)


def relative(
    area: str, name: str, truth: float, shown: float | None, limit_percent: float, unit: str = ""
) -> Figure:
    """Return the row of a figure judged by its relative error in percent; `None` never holds."""
    limit = f"{limit_percent:g} %"
    if shown is None:
        return Figure(area, name, f"{truth:.4g}{unit}", "–", "–", limit, holds=False)
    percent = 100.0 * (shown - truth) / truth
    cells = (f"{truth:.4g}{unit}", f"{shown:.4g}{unit}", f"{percent:+.1f} %", limit)
    return Figure(area, name, *cells, holds=abs(percent) <= limit_percent)
