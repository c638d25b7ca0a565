"""Measure false alarms and detection of the balance judge by family, on loads simulated without sparktop.

`load_families/` has its own simulation of batching servers, routers and clients, which the real store samples
in virtual time, for ten minutes per run. The table has, by family: runs that ever announced oscillating or
starved wrongly for a known router, with the 95 % interval (Wilson); and of the herding runs whose
true swing is at least half of the mean load, the share detected, and detected within 90 s, and after how
many seconds; verdicts are read each 5 s.
`counterfactual.py` has the loss of throughput.

With --scrapes, each server is sampled at the intervals of a Prometheus, at an offset of its own: runs that
ever stated a swing, that were called uneven although the requests were not, and swings that were called so.

usage: families.py [--scrapes] [--runs 100] [--seed 1000000] [--only WORDS …] [--write]
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence

import tables
from load_families.families import FAMILIES, Family
from load_families.watching import ALARMS, SWINGS, Run, watch
from tables import share

from sparktop.model.balance import BalanceWord

HELD_OUT_SEED = 1_000_000
SOON_S = 90.0
SCRAPES_S = (5.0, 15.0, 30.0)
HEADS = (
    *("family", "runs", "false *oscillating*", "false *starved*", "herding found", "within 90 s"),
    "named after: median, 90 % of runs",
)
Task = tuple[int, str, float | None]
"""(index of the family, seed, seconds between two scrapes or None)."""


def run_one(task: Task) -> Run:
    """Run one scene."""
    family, seed, scrape_s = task
    return watch(FAMILIES[family], seed, scrape_s)


def tasks(families: Sequence[Family], runs: int, seed: int, scrape_s: float | None = None) -> list[Task]:
    """Return the tasks of `runs` runs of each family, in their order."""
    return [
        (FAMILIES.index(one), f"{one.name}-{seed + index}", scrape_s)
        for one in families
        for index in range(runs)
    ]


def row(family: Family, runs: Sequence[Run]) -> list[str]:
    """Return a family's row of the table."""
    cells = [family.name, str(len(runs))]
    for word in ("oscillating", "starved"):
        wrong = family.herds and word == "oscillating"
        cells.append("–" if wrong else share(sum(word in one.false_words for one in runs), len(runs)))
    if family.herds:
        named = sorted(one.named_s or math.inf for one in runs if one.swing >= SWINGS)
        cells += [share(sum(when <= most for when in named), len(named)) for most in (family.seconds, SOON_S)]
        last = [named[math.ceil(part * len(named)) - 1] for part in (0.5, 0.9)] if named else []
        cells.append(", ".join(f"{when:.0f} s" for when in last) or "–")
    else:
        cells += ["–"] * 3
    return cells


def failures(family: Family, runs: Sequence[Run]) -> Iterator[str]:
    """Yield a line for each run that has a false alarm, or finds herding late or not at all."""
    for one in runs:
        missed = family.herds and one.swing >= SWINGS and (one.named_s is None or one.named_s > SOON_S)
        if one.false_words or missed:
            what = ", ".join(one.false_words) or f"named at {one.named_s}"
            yield f"{one.seed}: {what}; swing {one.swing:.2f}; {one.about}; words {', '.join(one.words)}"


def judged(families: Sequence[Family], runs: int, seed: int) -> list[str]:
    """Return the table of families, judged by samples as the monitor takes them."""
    rows, found = list[list[str]](), list[Run]()
    for run in tables.in_processes(run_one, tasks(families, runs, seed)):
        found.append(run)
        if len(found) == runs:
            family = families[len(rows)]
            rows.append(row(family, found))
            print("  ".join(rows[-1]), *failures(family, found), sep="\n", file=sys.stderr, flush=True)
            found = []
    return [*tables.table(HEADS, rows), "", f"Seeds {seed} to {seed + runs - 1}."]


def scraped(families: Sequence[Family], runs: int, seed: int) -> list[str]:
    """Return the table of scrapes: how often a word is wrong, and how often swings are called uneven."""
    counts: dict[str, list[str]] = {
        "a swing is stated": [],
        "false *uneven*": [],
        "*uneven*, of runs that herd": [],
    }
    for scrape_s in SCRAPES_S:
        found = list(tables.in_processes(run_one, tasks(families, runs, seed, scrape_s)))
        alarms = {word.value for word in ALARMS}
        herding = {family.name for family in families if family.herds}
        herds = [one for one in found if one.family in herding and one.swing >= SWINGS]
        uneven = BalanceWord.UNEVEN.value
        stated = sum(not alarms.isdisjoint(one.words) for one in found)
        false = sum(uneven in one.false_words for one in found)
        for cells, hits, whole in zip(
            counts.values(),
            (stated, false, sum(uneven in one.words for one in herds)),
            (len(found), len(found), len(herds)),
            strict=True,
        ):
            cells.append(share(hits, whole))
    heads = ("of all families", *(f"every {scrape_s:g} s" for scrape_s in SCRAPES_S))
    return tables.table(heads, ((name, *cells) for name, cells in counts.items()))


def main() -> int:
    """Run the families and print their table."""
    parser = tables.options(__doc__, runs=100, seed=HELD_OUT_SEED)
    parser.add_argument("--only", nargs="+", metavar="WORDS", help="families whose name has one of these")
    parser.add_argument("--scrapes", action="store_true", help="sample at the intervals of a Prometheus")
    options = parser.parse_args()
    chosen = [
        one for one in FAMILIES if options.only is None or any(words in one.name for words in options.only)
    ]
    if options.scrapes:
        lines = scraped(chosen, options.runs, options.seed)
        tables.publish("families.py scrapes", lines, write=options.write)
    else:
        lines = judged(chosen, options.runs, options.seed)
        tables.publish("families.py", lines, write=options.write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
