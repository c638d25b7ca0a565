"""Measure how often recorded see-saws are found, by the phase at which their servers are sampled.

Each trace of real least-busy routing in tests/data/traces is sampled at 1 and 2 Hz, beginning at 16 times
that are a sixteenth of the interval apart, and judged as in the program. The table has, by trace and rate:
phases in which *oscillating* was announced, and the seconds until then (median and latest). Of the traces
of other routing, it has the phases with any bad verdict.

usage: phases.py [--write]
"""

from __future__ import annotations

import argparse
import sys
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from sparktop.analysis.balance.load_grid import LoadTrack
from sparktop.model.balance import BalanceWord
from tests.analysis.balance.balance_traces import LIFE_S, trace
from tests.analysis.balance.routed_load import follow

PHASES = 16
RATES_HZ = (1.0, 2.0)
README = Path(__file__).resolve().parent / "README.md"
MARKS = ("<!-- phases.py: begin -->", "<!-- phases.py: end -->")
SWINGS = ("leastbusy-c16", "leastbusy-c16-b", "leastbusy-c16-busy", "leastbusy-c16-busy-b", "cooldown-c64")


def sampled(track: LoadTrack, every_s: float, phase: float) -> LoadTrack:
    """Return a track as polls see it that begin at the share `phase` of their interval `every_s`."""
    begin, end = track.times_s[0], track.times_s[-1]
    count = int((end - begin) / every_s - phase) + 1
    times = [begin + (phase + number) * every_s for number in range(count)]
    rows = [bisect_right(track.times_s, at) - 1 for at in times]

    def chosen(values: Sequence[float] | None) -> list[float] | None:
        return None if values is None else [values[row] for row in rows]

    return LoadTrack(
        track.name,
        times,
        [track.running[row] for row in rows],
        chosen(track.waiting),
        chosen(track.generation_tps),
    )


def first_bad(name: str, hz: float, phase: float) -> dict[BalanceWord, float]:
    """Return the seconds until each bad verdict was first announced, by verdict."""
    found: dict[BalanceWord, float] = {}
    for step in follow([sampled(one, 1 / hz, phase) for one in trace(name)], LIFE_S[name]):
        if step.balance.word.bad:
            found.setdefault(step.balance.word, step.at_s)
    return found


def rows() -> Iterator[str]:
    """Yield the rows of the table."""
    for name in LIFE_S:
        for hz in RATES_HZ:
            every = [first_bad(name, hz, phase / PHASES) for phase in range(PHASES)]
            if name in SWINGS:
                after = [one[BalanceWord.OSCILLATING] for one in every if BalanceWord.OSCILLATING in one]
                times = f"{median(after):.0f} / {max(after):.0f}" if after else "–"
                yield f"| {name} | {hz:g} | {len(after)} of {PHASES} | {times} | |"
            else:
                yield f"| {name} | {hz:g} | | | {sum(map(bool, every))} of {PHASES} |"


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="put the table into benchmarks/README.md")
    options = parser.parse_args()
    lines = ["| trace | Hz | *oscillating* | after s, median / latest | bad |", "|---|---|---|---|---|"]
    print("\n".join(lines))
    for row in rows():
        lines.append(row)
        print(row, flush=True)
    if options.write:
        page = README.read_text(encoding="utf-8")
        head, rest = page.split(MARKS[0])
        tail = rest.split(MARKS[1])[1]
        body = "\n".join(lines)
        README.write_text(f"{head}{MARKS[0]}\n\n{body}\n\n{MARKS[1]}{tail}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
