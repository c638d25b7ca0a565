"""Measure false alarms and detection of the balance judge by family, on loads simulated without sparktop.

`load_families/` has its own simulation of batching servers, routers and clients, which the real store samples
in virtual time, for ten minutes per run. The table has, by family: runs that ever announced oscillating or
starved wrongly for a known router, with the 95 % interval (Clopper and Pearson); of the herding runs whose
true swing is at least half of the mean load, the share detected, and detected within 90 s; and the error of
the shown loss of throughput (the true loss is relative to the best split of the same number of requests, by
the servers' own curves).

usage: families.py [--runs 100] [--seed 1000000] [--only WORDS …] [--write] [--misses]

With --write, the table is written to benchmarks/README.md; with --misses, each run that failed is printed.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from load_families.families import FAMILIES, Family
from load_families.watching import SWINGS, Run, watch

README = Path(__file__).resolve().parent / "README.md"
MARKS = ("<!-- families.py: begin -->", "<!-- families.py: end -->")
HELD_OUT_SEED = 1_000_000
PROCESSES, NICE = 2, 10
SOON_S = 90.0


def interval(hits: int, runs: int, level: float = 0.95) -> tuple[float, float]:
    """Return the exact (Clopper–Pearson) interval of the share hits / runs, 0 to 1."""

    def at_most(count: int, share: float) -> float:
        return math.fsum(
            math.comb(runs, one) * share**one * (1 - share) ** (runs - one) for one in range(count + 1)
        )

    tail = (1 - level) / 2
    low = 0.0 if hits == 0 else _root(lambda share: at_most(hits - 1, share) - (1 - tail))
    high = 1.0 if hits == runs else _root(lambda share: at_most(hits, share) - tail)
    return low, high


def _root(falling: Callable[[float], float]) -> float:
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if falling(middle) > 0 else (low, middle)
    return (low + high) / 2


def run_one(task: tuple[int, str]) -> Run:
    """Run one scene; `task` is (index of the family, seed)."""
    return watch(FAMILIES[task[0]], task[1])


def runs_of(families: Sequence[Family], runs: int, seed: int) -> Iterator[Run]:
    """Yield `runs` runs of each family, in their order, made by two processes."""
    tasks = [(FAMILIES.index(one), f"{one.name}-{seed + index}") for one in families for index in range(runs)]
    with multiprocessing.get_context("spawn").Pool(PROCESSES, os.nice, (NICE,)) as pool:
        yield from pool.imap(run_one, tasks, chunksize=2)


def share(hits: int, runs: int) -> str:
    """Return "hits of runs" with the interval of the share in percent."""
    if not runs:
        return "–"
    low, high = interval(hits, runs)
    return f"{hits} of {runs} ({100 * low:.1f}–{100 * high:.1f} %)"


def at(values: Sequence[float], part: float) -> float:
    """Return the quantile `part` (0 to 1) of the values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def row(family: Family, runs: Sequence[Run]) -> str:
    """Return a family's row of the table."""
    cells = [family.name, str(len(runs))]
    for word in ("oscillating", "starved"):
        wrong = family.herds and word == "oscillating"
        cells.append("–" if wrong else share(sum(word in one.false_words for one in runs), len(runs)))
    plain = [one for one in runs if one.swing >= SWINGS]
    named = [one.named_s for one in plain if one.named_s is not None]
    if family.herds:
        soon = sum(when <= SOON_S for when in named)
        cells += [share(len(named), len(plain)), share(soon, len(plain))]
    else:
        cells += ["–", "–"]
    errors = [error for one in runs for error in one.lost_errors]
    judged = sum(one.judged for one in runs)
    if errors:
        off = [abs(error) for error in errors]
        cells.append(f"{at(off, 0.5):.1f} / {at(off, 0.95):.1f} ({100 * len(errors) / judged:.0f} %)")
    else:
        cells.append("–")
    return f"| {' | '.join(cells)} |"


HEAD = (
    "| family | runs | false *oscillating* | false *starved* | herding found | within 90 s |"
    " loss, points off: median / p95 (shown) |\n|---|---|---|---|---|---|---|"
)


def failures(family: Family, runs: Sequence[Run]) -> Iterator[str]:
    """Yield a line for each run that has a false alarm, or finds herding late or not at all."""
    for one in runs:
        missed = family.herds and one.swing >= SWINGS and (one.named_s is None or one.named_s > SOON_S)
        if one.false_words or missed:
            what = ", ".join(one.false_words) or f"named at {one.named_s}"
            yield f"{one.seed}: {what}; swing {one.swing:.2f}; {one.about}; words {', '.join(one.words)}"


def write_between(marks: tuple[str, str], text: str, readme: Path = README) -> None:
    """Replace the text between the marks of the README."""
    page = readme.read_text(encoding="utf-8")
    head, rest = page.split(marks[0])
    _, tail = rest.split(marks[1])
    readme.write_text(f"{head}{marks[0]}\n\n{text}\n\n{marks[1]}{tail}", encoding="utf-8")


def main() -> int:
    """Run the families and print their table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=HELD_OUT_SEED)
    parser.add_argument("--only", nargs="+", metavar="WORDS", help="families whose name has one of these")
    parser.add_argument("--write", action="store_true", help="put the table into benchmarks/README.md")
    parser.add_argument("--misses", action="store_true", help="print each run that failed")
    options = parser.parse_args()
    chosen = [
        one for one in FAMILIES if options.only is None or any(words in one.name for words in options.only)
    ]
    rows: list[str] = []
    found: list[Run] = []
    for run in runs_of(chosen, options.runs, options.seed):
        found.append(run)
        if len(found) < options.runs:
            continue
        family = chosen[len(rows)]
        rows.append(row(family, found))
        print(rows[-1], flush=True)
        if options.misses:
            print("\n".join(f"    {line}" for line in failures(family, found)), flush=True)
        found = []
    text = "\n".join([HEAD, *rows, "", f"Seeds {options.seed} to {options.seed + options.runs - 1}."])
    print(f"\n{text}")
    if options.write:
        write_between(MARKS, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
