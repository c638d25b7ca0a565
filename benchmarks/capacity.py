"""Compare the capacity search with exhaustive runs, on simulated servers in virtual time.

Each set-up is drawn from its seed: kind of load, speed of the server, slots, KV cache, lengths, pauses and
conditions. The search chooses its levels as `sparktop capacity` does. The true answer (`exhaustive`) comes
from runs of every level with other requests than the search's; levels near the answer have long runs. Where
only some of these long runs pass, the truth is a band of levels. An answer agrees if it is in the band or
within one of it (rates: within 10 %); answers within one of the middle of the band are counted as well.

usage: capacity.py [--setups 20] [--seed 9300] [--only FAMILY] [--write] [--levels]

With --write, the table is written to benchmarks/README.md; with --levels, each judged level is printed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import NamedTuple

from exhaustive import Truth, is_unstable, truth
from msgspec.structs import replace
from simulated_levels import FRESH_SEED, Setup, run_level, setup

from sparktop.model.load import LoadKind, LoadMode, LoadPoint
from sparktop.sweep.plan.capacity import Pace, level_plan
from sparktop.sweep.plan.plan import Plan
from sparktop.sweep.result.measure import RequestTrace, collect
from sparktop.sweep.run.capacity.forecast import most_seconds, usual_seconds
from sparktop.sweep.run.capacity.judgement import Judged, judge
from sparktop.sweep.run.capacity.search import CapacitySearch
from sparktop.sweep.run.conversations.level import ramp_s
from sparktop.sweep.run.open_loop.arrivals import warm_up_s

README = Path(__file__).resolve().parent / "README.md"
MARKS = ("<!-- capacity.py: begin -->", "<!-- capacity.py: end -->")
_REST_S = 3.0
"""Seconds between two runs."""
_RATIO = 1.1 + 1e-9


class Row(NamedTuple):
    """The answers of the search and of exhaustive runs for one set-up."""

    seed: int
    family: str
    words: str
    found: float
    interval: tuple[float | None, float | None]
    truth: Truth
    runs: int
    minutes: float
    forecast: tuple[float, float]
    """Minutes that the plan forecasts: if no decision is close, and at most."""
    rates: bool

    @property
    def strict(self) -> bool:
        """Whether the answer is within one of the middle of the band (rates: within 10 %)."""
        return self._near(self.truth.answer, self.truth.answer)

    @property
    def good(self) -> bool:
        """Whether the answer is in the band of the truth or within one of it (rates: within 10 %)."""
        return self._near(self.truth.low, self.truth.high)

    def _near(self, low: float, high: float) -> bool:
        if self.rates:
            return low / _RATIO <= self.found <= high * _RATIO
        return low - 1 <= self.found <= high + 1

    @property
    def inside(self) -> bool:
        """Whether the interval of the answer contains a level of the band."""
        low, fails = self.interval
        most = float("inf") if fails is None else fails
        return (low or 0.0) <= self.truth.high and self.truth.low < most


class Measured:
    """The runs of a set-up's levels."""

    def __init__(self, made: Setup, seed: int) -> None:
        """Start without any runs."""
        self.made, self.seed = made, seed
        self.traces: dict[float, list[RequestTrace]] = {}
        self.unstable: dict[float, str] = {}
        self.durations: dict[float, float] = {}
        self.seconds = 0.0
        self.pace = Pace()

    def judge(self, value: float, run: int, *, decides: bool = False) -> Judged:
        """Run a level once more; return the verdict from all its runs so far."""
        capacity = self.made.capacity
        plan = level_plan(self.made.plan, LoadPoint(capacity.kind, value), self.pace, decides=decides)
        duration_s = plan.duration_s or 60.0
        traces = collect(run_level(self.made, value, duration_s, f"{self.seed}/{value}/{run}"))
        for one in traces:
            one.run = run
        is_rate = capacity.kind is LoadKind.RATE
        before_s = warm_up_s(plan) if is_rate else ramp_s(plan) if plan.conversations is not None else 0.0
        self.seconds += before_s + duration_s + _REST_S
        if is_rate:
            self.unstable[value] = is_unstable(traces, duration_s) or self.unstable.get(value, "")
        self.traces.setdefault(value, []).extend(traces)
        self.durations[value] = self.durations.get(value, 0.0) + duration_s
        found = judge(
            capacity, self.traces[value], max_error_share=0.01, unstable=self.unstable.get(value, "")
        )
        self.pace = self.pace.after(found.median_s, found.requests, value, self.durations[value])
        return found


def search(made: Setup, seed: int, *, show: bool) -> tuple[CapacitySearch, Measured]:
    """Run the capacity search on a set-up; return (the search, its runs)."""
    capacity, measured, first = made.capacity, Measured(made, seed), 1.0
    if capacity.kind is LoadKind.RATE:
        alone = collect(run_level(made._replace(plan=_alone(made.plan)), 1, 120.0, f"{seed}"))
        first = 1 / median(one.e2e_s or 1.0 for one in alone if one.ok)
    found = CapacitySearch(capacity, first)
    while (probe := found.next()) is not None:
        judged = measured.judge(probe.point.value, probe.run, decides=probe.decides)
        found.add(probe.point.value, judged)
        if show:
            _show("search", probe.point.value, judged)
    return found, measured


def _alone(plan: Plan) -> Plan:
    capacity = plan.capacity
    if capacity is None:
        raise ValueError(plan)
    return replace(plan, mode=LoadMode.STEADY, capacity=replace(capacity, kind=LoadKind.CONCURRENCY))


def _show(which: str, value: float, judged: Judged) -> None:
    shares = " ".join(f"{one.share:.3f}[{one.low:.3f}]/{one.needed:.2f}={one.value}" for one in judged.shares)
    sys.stderr.write(
        f"{which} {value:g}: {judged.holds} {judged.certain.name} n={judged.requests} {shares} "
        f"{judged.trouble}\n"
    )


def row(seed: int, *, show: bool = False) -> Row:
    """Return the answers of both ways for the set-up drawn from `seed`."""
    made = setup(seed)
    found, measured = search(made, seed, show=show)
    return Row(
        seed,
        made.family,
        made.words,
        found.holds or 0.0,
        found.interval,
        truth(made, seed, found.tried[0]),
        sum(found.runs.values()),
        measured.seconds / 60,
        (usual_seconds(made.plan) / 60, most_seconds(made.plan) / 60),
        made.capacity.kind is LoadKind.RATE,
    )


def table(rows: list[Row]) -> str:
    """Return Markdown: the rows, the figures of each family and a summary."""
    lines = [
        "| set-up | search | exhaustive | apart | in its interval | runs | min |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in sorted(rows, key=lambda one: (one.family, one.seed)):
        apart = f"{100 * (one.found / one.truth.answer - 1):+.0f} %" if one.rates and one.truth.answer else ""
        apart = apart or f"{one.found - one.truth.answer:+.0f}"
        lines.append(
            f"| {one.family}: {one.words} | {one.found:g} | {one.truth.words} | {apart} | "
            f"{'yes' if one.inside else 'no'} | {one.runs} | {one.minutes:.0f} |"
        )
    return "\n".join([*lines, "", *families(rows), "", summary(rows)])


def families(rows: list[Row]) -> list[str]:
    """Return agreement and duration of each family as Markdown rows; minutes are those of virtual time."""
    lines = [
        "| family | set-ups | agree | strictly | runs | min, median (range) | forecast, min |",
        "|---|---|---|---|---|---|---|",
    ]
    for family, group in groupby(sorted(rows, key=lambda one: one.family), key=lambda one: one.family):
        part = list(group)
        minutes = sorted(one.minutes for one in part)
        usual, most = (median(one.forecast[end] for one in part) for end in (0, 1))
        good, strict = sum(one.good for one in part), sum(one.strict for one in part)
        lines.append(
            f"| {family} | {len(part)} | {good} | {strict} | {median(one.runs for one in part):.0f} | "
            f"{median(minutes):.0f} ({minutes[0]:.0f} to {minutes[-1]:.0f}) | {usual:.0f} to {most:.0f} |"
        )
    return lines


def summary(rows: list[Row]) -> str:
    """Return how many answers agree with the truth, and the family with the least agreement."""
    shares: dict[str, list[bool]] = {}
    for one in rows:
        shares.setdefault(one.family, []).append(one.good)
    worst, found = min(shares.items(), key=lambda item: sum(item[1]) / len(item[1]))
    good, strict, inside = (sum(getattr(one, name) for one in rows) for name in ("good", "strict", "inside"))
    agree = f"{good} of {len(rows)} agree within one (rates: 10 %), {strict} strictly"
    return (
        f"{agree}; the exhaustive answer lies in the search's interval in {inside}. The worst family is "
        f"*{worst}*: {sum(found)} of {len(found)}."
    )


def main() -> int:
    """Print the table; return 1 if an answer does not agree, else 0."""
    parser = argparse.ArgumentParser(description="capacity search beside exhaustive runs")
    parser.add_argument("--setups", type=int, default=20)
    parser.add_argument("--seed", type=int, default=FRESH_SEED)
    parser.add_argument("--only")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--levels", action="store_true")
    asked = parser.parse_args()
    seeds = [
        seed
        for seed in range(asked.seed, asked.seed + asked.setups)
        if asked.only in {None, setup(seed).family}
    ]
    if asked.levels:
        rows = [row(seed, show=True) for seed in seeds]
    else:
        with multiprocessing.Pool(2, os.nice, (10,)) as pool:
            rows = list(pool.imap(row, seeds))
    text = table(rows)
    sys.stdout.write(f"{text}\n")
    if asked.write:
        page = README.read_text(encoding="utf-8")
        before, _, rest = page.partition(MARKS[0])
        after = rest.partition(MARKS[1])[2]
        README.write_text(f"{before}{MARKS[0]}\n\n{text}\n\n{MARKS[1]}{after}", encoding="utf-8")
    return 0 if all(one.good for one in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
