"""Tables of the studies: how each is made from runs in several processes, and written into README.md."""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
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


def share(hits: int, runs: int, level: float = 0.95) -> str:
    """Return "hits of runs" with the exact (Clopper–Pearson) interval of the share in percent."""
    if not runs:
        return "–"

    def at_most(count: int, part: float) -> float:
        return math.fsum(
            math.comb(runs, one) * part**one * (1 - part) ** (runs - one) for one in range(count + 1)
        )

    tail = (1 - level) / 2
    low = 0.0 if hits == 0 else _root(lambda part: at_most(hits - 1, part) - (1 - tail))
    high = 1.0 if hits == runs else _root(lambda part: at_most(hits, part) - tail)
    return f"{hits} of {runs} ({100 * low:.1f}–{100 * high:.1f} %)"


def _root(falling: Callable[[float], float]) -> float:
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if falling(middle) > 0 else (low, middle)
    return (low + high) / 2


@dataclass(frozen=True, slots=True)
class Figure:
    """A row of the truth table: a figure that sparktop shows, beside a truth that shares no code with it."""

    area: str
    """The part of the product: "tokens", "levels", "balance", "compare", "watching"."""
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
