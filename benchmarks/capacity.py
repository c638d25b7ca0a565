"""The answer of the capacity search beside that of exhaustive runs, on simulated servers in virtual time.

Each set-up is drawn from its seed: kind of load, speed of the server, slots, KV cache, lengths, pauses and
conditions. The search chooses its levels as `sparktop capacity` does. Then every number from 1 on is run, of
rates each in a grid of 4 %, with other requests than the search's and four runs each, up to a
quarter more than the first that fails, and within a fifth of the answer that these give twelve; the answer is
the largest number at which a falling line through the shares is high enough.

usage: capacity.py [--setups 20] [--seed 9300] [--only KIND] [--write] [--levels]

With --write the table goes into benchmarks/README.md; with --levels each judged level is printed.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import random
import sys
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from limits import DENSE_8B, DENSE_70B

from sparktop.model.load import Level, LoadEvent, LoadKind, LoadMode, LoadPoint
from sparktop.simulation.calibration import CLUSTER_TP2, GX10_VANILLA, LONG_CONTEXT, SOLO
from sparktop.simulation.closed_loop import ClosedLoop, DirectWay
from sparktop.simulation.conversations import Conversations
from sparktop.simulation.engine import Engine
from sparktop.simulation.open_loop import OpenLoop
from sparktop.simulation.profile import EngineProfile
from sparktop.simulation.virtual_time import VirtualTime
from sparktop.sweep.plan.arrivals import Pattern, Rate, due_times
from sparktop.sweep.plan.capacity import (
    Pace,
    default_most,
    default_seconds,
    level_plan,
    parse_conditions,
    share_needed,
)
from sparktop.sweep.plan.conversations.lane import planned_turns
from sparktop.sweep.plan.conversations.reading import find_conversations
from sparktop.sweep.plan.people import with_users
from sparktop.sweep.plan.plan import Capacity, Plan
from sparktop.sweep.result.open_loop import open_loop_figures
from sparktop.sweep.result.trace import RequestTrace, collect
from sparktop.sweep.run.capacity.judgement import Judged, judge
from sparktop.sweep.run.capacity.kinds import new_search
from sparktop.sweep.run.capacity.search import CapacitySearch
from sparktop.sweep.terms.statistics import falling_shares

README = Path(__file__).resolve().parent / "README.md"
MARKS = ("<!-- capacity.py: begin -->", "<!-- capacity.py: end -->")
TUNED_SEED, FRESH_SEED = 9100, 9300
"""First seeds of the set-ups with which the search was tuned, and of those with other models and lengths."""
_TAIL_S = 60.0
_BEYOND = 1.25
_NEAR = 0.2
_GRID = 1.04
_EXHAUSTIVE_RUNS = 4
_NEAR_RUNS = 12
"""Runs of each level within a fifth of the answer that the others give."""
_OTHER_RUNS = 100
_KINDS = (
    ("agents", LoadKind.AGENTS),
    ("chat", LoadKind.AGENTS),
    ("users", LoadKind.USERS),
    ("concurrency", LoadKind.CONCURRENCY),
    ("rate", LoadKind.RATE),
)


class Setup(NamedTuple):
    """A simulated server, the plan of the search on it, and what they are in words."""

    family: str
    words: str
    profile: EngineProfile
    plan: Plan


class Row(NamedTuple):
    """What both ways answered."""

    seed: int
    family: str
    words: str
    found: float
    truth: float
    inside: bool
    levels: int
    minutes: float
    rates: bool

    @property
    def good(self) -> bool:
        """Whether the answers agree within one, of rates within 10 %."""
        if self.rates:
            low, high = sorted((self.found, self.truth))
            return high == 0 or (low > 0 and high / low <= 1.1 + 1e-9)
        return abs(self.found - self.truth) <= 1


def setup(seed: int) -> Setup:
    """Return the set-up of a seed; seeds in a row have different kinds of load."""
    dice = random.Random(f"capacity/{seed}")  # noqa: S311 - no secret
    family, kind = _KINDS[seed % len(_KINDS)]
    fresh = seed >= FRESH_SEED
    base = dice.choice((DENSE_8B, CLUSTER_TP2, DENSE_70B) if fresh else (SOLO, GX10_VANILLA, LONG_CONTEXT))
    slots = dice.choice((8, 16, 48, 128))
    blocks = dice.choice((4_000, 8_000, 24_000))
    profile = replace(
        base,
        max_num_seqs=slots,
        kv_blocks=blocks,
        max_model_len=49_152,
        max_num_batched_tokens=dice.choice((2048, 8192)),
    )
    ttft_ms = dice.choice((500, 1000, 2000, 4000))
    stream = dice.choice((4, 8, 15))
    conditions = f"ttft_{dice.choice(('p90', 'p95'))}_ms={ttft_ms},stream_tps={stream}"
    prompt = dice.choice((64, 1024, 4096) if fresh else (128, 512, 2048))
    output = dice.choice((64, 200, 500) if fresh else (32, 128, 300))
    capacity = Capacity(kind, parse_conditions(conditions, kind), most=min(48.0, default_most(kind)))
    plan = Plan(targets=(), pp=prompt, tg=output, runs=1, duration_s=default_seconds(kind))
    lengths = f"{prompt} + {output} tokens"
    if kind is LoadKind.AGENTS:
        name = "coder-quick" if family == "agents" else "chat"
        plan = replace(plan, conversations=find_conversations(name), mode=LoadMode.AGENTS)
        lengths = name
    elif kind is LoadKind.USERS:
        plan = replace(with_users(plan, dice.choice((5.0, 15.0))), mode=LoadMode.AGENTS)
    elif kind is LoadKind.RATE:
        plan = replace(plan, mode=LoadMode.OPEN)
    else:
        plan = replace(plan, mode=LoadMode.STEADY)
    words = f"{base.name}, {slots} slots, {blocks * 16 // 1000}k KV, {lengths}: {conditions}"
    return Setup(family, words, profile, replace(plan, capacity=capacity))


def run_level(made: Setup, value: float, run: int, duration_s: float, seed: int) -> list[LoadEvent]:
    """Return what one run of a level shows; equal numbers give equal requests."""
    engine = Engine(made.profile, seed=f"{seed}/{run}")
    time = VirtualTime([engine])
    way, plan = DirectWay(time), made.plan
    kind = plan.kind
    if kind is LoadKind.RATE:
        warm_s = min(120.0, duration_s / 4)
        due = due_times(Pattern(), Rate(value), warm_s + duration_s + _TAIL_S, f"{seed}/{value}/{run}")
        loop = OpenLoop(time, way, lambda _: (plan.pp, plan.tg))
        loop.start(due, (warm_s, warm_s + duration_s), warm_s + duration_s + _TAIL_S)
        time.run(warm_s + duration_s + _TAIL_S)
        return loop.events
    if kind is LoadKind.CONCURRENCY:
        level = Level("s", int(value), plan.pp, plan.tg, LoadMode.STEADY, 1, duration_s)
        closed = ClosedLoop(time, way, level, seed=run, stagger_s=0.1)
        closed.start()
        time.run(duration_s + 600)
        return closed.events
    preset = plan.conversations
    if preset is None:
        raise ValueError(made)
    turns = [
        planned_turns(preset, f"{seed}/{value}/{run}", lane, made.profile.max_model_len)
        for lane in range(int(value))
    ]
    agents = Conversations(time, way, turns, block_tokens=made.profile.block_tokens, salt=run)
    ramp_s = min(duration_s, preset.human_pause_s.median) if kind is LoadKind.USERS else 0.1 * duration_s
    agents.start(duration_s, ramp_s=ramp_s, tail_s=_TAIL_S)
    time.run(duration_s + 3000)
    return agents.events


class Measured:
    """The runs of a set-up's levels."""

    def __init__(self, made: Setup, seed: int) -> None:
        """Begin without any level."""
        self.made, self.seed = made, seed
        self.traces: dict[float, list[RequestTrace]] = {}
        self.unstable: dict[float, str] = {}
        self.seconds = 0.0
        self.pace = Pace()

    def judge(self, value: float, run: int, *, decides: bool = False) -> Judged:
        """Run a level once more, and return the judgement by all its runs."""
        capacity = self.made.plan.capacity
        if capacity is None:
            raise ValueError(self.made)
        plan = level_plan(self.made.plan, LoadPoint(capacity.kind, value), self.pace, decides=decides)
        duration_s = plan.duration_s or 60.0
        traces = collect(run_level(self.made, value, run, duration_s, self.seed))
        for one in traces:
            one.run = run
        self.seconds += duration_s * 1.2
        if capacity.kind is LoadKind.RATE:
            begin = min(one.due for one in traces if one.due is not None)
            figures = open_loop_figures(traces, begin, begin + duration_s)
            if figures is not None and figures.unstable:
                self.unstable[value] = "unstable"
        self.traces.setdefault(value, []).extend(traces)
        found = judge(
            capacity, self.traces[value], max_error_share=0.01, unstable=self.unstable.get(value, "")
        )
        self.pace = self.pace.after(found.median_s, len(traces), value, duration_s)
        return found


def search(made: Setup, seed: int, *, show: bool) -> tuple[CapacitySearch, Measured]:
    """Return the search on a set-up."""
    capacity = made.plan.capacity
    if capacity is None:
        raise ValueError(made)
    measured = Measured(made, seed)
    first = 1.0
    if capacity.kind is LoadKind.RATE:
        alone = collect(run_level(made._replace(plan=_alone(made.plan)), 1, 0, 20.0, seed))
        first = 1 / median(one.e2e_s or 1.0 for one in alone if one.ok)
    found = new_search(capacity, first)
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


def exhaustive(made: Setup, seed: int, found: float, first: float, *, show: bool) -> float:
    """Return the answer of running every level, with other requests; `found` is the search's."""
    capacity = made.plan.capacity
    if capacity is None:
        raise ValueError(made)
    rates = capacity.kind is LoadKind.RATE
    measured = Measured(made, seed)
    levels = _all_levels(measured, max(first / 16, (found or first) / 1.6) if rates else 1.0, capacity)
    answer = _answer(capacity, levels)
    for value in levels:
        if abs(value - answer) <= max(0.0 if rates else 2.0, _NEAR * answer):
            for run in range(_EXHAUSTIVE_RUNS, _NEAR_RUNS):
                levels[value] = measured.judge(value, _OTHER_RUNS + run)
    if show:
        for value, judged in levels.items():
            _show("exhaustive", value, judged)
    return _answer(capacity, levels)


def _all_levels(measured: Measured, value: float, capacity: Capacity) -> dict[float, Judged]:
    """Return the judgements of all levels from `value` on, up to a quarter more than the first that fails."""
    levels: dict[float, Judged] = {}
    failed_at = math.inf
    while value <= min(capacity.most, _BEYOND * failed_at):
        for run in range(_EXHAUSTIVE_RUNS):
            levels[value] = measured.judge(value, _OTHER_RUNS + run)
        if not levels[value].holds:
            failed_at = min(failed_at, value)
        value = value * _GRID if capacity.kind is LoadKind.RATE else value + 1
    return levels


def _answer(capacity: Capacity, levels: dict[float, Judged]) -> float:
    if capacity.kind is LoadKind.RATE:
        needed, number = capacity.share, len(capacity.conditions)
        return _crossing(levels, number, needed)
    return min(
        _crossing(levels, number, share_needed(capacity, one))
        for number, one in enumerate(capacity.conditions)
    )


def _crossing(levels: dict[float, Judged], number: int, needed: float) -> float:
    """Return the largest load at which a falling line through the shares of a condition is high enough.

    It is the falling step function nearest to the shares (pool adjacent violators), so that a single unlucky
    level among many decides nothing.
    """
    cases = [(judged.shares[number].met, judged.shares[number].count) for judged in levels.values()]
    shares = falling_shares(cases)
    holding = [at for at, share in zip(levels, shares, strict=True) if share >= needed - 1e-9]
    return max(holding, default=0.0)


def _show(which: str, value: float, judged: Judged) -> None:
    shares = " ".join(f"{one.share:.3f}[{one.low:.3f}]/{one.needed:.2f}={one.value}" for one in judged.shares)
    sys.stderr.write(
        f"{which} {value:g}: {judged.holds} {judged.certain.name} n={judged.requests} {shares} "
        f"{judged.trouble}\n"
    )


def row(seed: int, *, show: bool = False) -> Row:
    """Return what both ways answer on the set-up of a seed."""
    made = setup(seed)
    found, measured = search(made, seed, show=show)
    first = found.tried[0]
    truth = exhaustive(made, seed, found.holds or 0.0, first, show=show)
    low, high = found.interval
    rates = made.plan.kind is LoadKind.RATE
    inside = (low or 0.0) <= truth * (1.1 if rates else 1) and (
        high is None or truth < high * (1.1 if rates else 1)
    )
    return Row(
        seed,
        made.family,
        made.words,
        found.holds or 0.0,
        truth,
        inside,
        sum(found.runs.values()),
        measured.seconds / 60,
        rates,
    )


def table(rows: list[Row]) -> str:
    """Return the rows and the summary of each family as Markdown."""
    lines = [
        "| set-up | search | exhaustive | apart | in its interval | runs | min |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in sorted(rows, key=lambda one: (one.family, one.seed)):
        apart = f"{100 * (one.found / one.truth - 1):+.0f} %" if one.rates and one.truth else ""
        apart = apart or f"{one.found - one.truth:+.0f}"
        lines.append(
            f"| {one.family}: {one.words} | {one.found:g} | {one.truth:.3g} | {apart} | "
            f"{'yes' if one.inside else 'no'} | {one.levels} | {one.minutes:.0f} |"
        )
    families = []
    for family, group in groupby(sorted(rows, key=lambda one: one.family), key=lambda one: one.family):
        part = list(group)
        families.append((sum(one.good for one in part) / len(part), family, part))
    _, family, part = min(families)
    good = sum(one.good for one in rows)
    inside = sum(one.inside for one in rows)
    summary = (
        f"{good} of {len(rows)} agree within one (rates: 10 %); the exhaustive answer lies in the search's "
        f"interval in {inside}. The worst family is *{family}*: {sum(one.good for one in part)} of "
        f"{len(part)}."
    )
    lines += ["", summary]
    return "\n".join(lines)


def main() -> int:
    """Print the table; return 1 if answers differ."""
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
