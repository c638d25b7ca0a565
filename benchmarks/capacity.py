"""Compare the capacity search with exhaustive runs, on simulated servers in virtual time.

Each set-up is drawn from its seed: kind of load, speed of the server, slots, KV cache, lengths, pauses and
conditions. The search chooses its levels as `sparktop capacity` does. The true answer (`truth`) comes
from runs of every level with other requests than the search's; levels near the answer have long runs. Where
only some of these long runs pass, the truth is a band of levels. An answer agrees if it is in the band or
within one of it (rates: within 10 %).

usage: capacity.py [--runs 20] [--seed 9300] [--only FAMILY] [--write]
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from statistics import NormalDist, fmean, median, stdev
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import tables
from limits import DENSE_8B, DENSE_70B
from msgspec.structs import replace

from sparktop.model.load import LoadEvent, LoadKind, LoadMode, LoadPoint, concurrency_point
from sparktop.simulation.calibration import CLUSTER_TP2, GX10_VANILLA, LONG_CONTEXT, SOLO
from sparktop.simulation.engine import Engine, EngineProfile
from sparktop.sweep.plan.arrivals import due_times, parse_pattern
from sparktop.sweep.plan.capacity import DEFAULT_S, level_plan, parse_conditions
from sparktop.sweep.plan.conversations import find_conversations
from sparktop.sweep.plan.plan import Capacity, Plan
from sparktop.sweep.result.measure import RequestTrace, collect
from sparktop.sweep.result.open_loop import open_loop_figures
from sparktop.sweep.run.forecast import most_seconds
from sparktop.sweep.run.judgement import LoadVerdict, judge
from sparktop.sweep.run.open_loop import ramp_s, tail_s
from sparktop.sweep.run.search import LEVEL_OVERHEAD, CapacitySearch
from stage.clients import ClosedLoop, DirectDestination, OpenLoop, VirtualTime
from stage.conversations import Conversations, planned_turns

FRESH_SEED = 9300
"""First seed of set-ups with other models and lengths than those of its tuning (from 9100)."""
_RAMP_SHARE, _LONGEST_RAMP_S = 0.1, 5.0
"""Ramp of a steady level as a share of its duration, and its maximum in seconds, as in the generator."""
_MOST, _MOST_CODER = 48.0, 12.0
_KINDS = (
    ("coder-quick", LoadKind.AGENTS),
    ("chat", LoadKind.AGENTS),
    ("concurrency", LoadKind.CONCURRENCY),
    ("rate", LoadKind.RATE),
    ("coder", LoadKind.AGENTS),
    ("rag", LoadKind.AGENTS),
)
FAMILIES = tuple(name for name, _ in _KINDS)


class Setup(NamedTuple):
    """A simulated server, the plan of the search on it, and a description of both."""

    family: str
    words: str
    profile: EngineProfile
    plan: Plan
    capacity: Capacity
    """The kind of load and the conditions of the search."""


def setup(seed: int) -> Setup:
    """Return the set-up drawn from a seed; consecutive seeds have different kinds of load."""
    dice = random.Random(f"capacity/{seed}")  # noqa: S311 - no secret
    family, kind = _KINDS[seed % len(_KINDS)]
    fresh = seed >= FRESH_SEED
    base = dice.choice((DENSE_8B, CLUSTER_TP2, DENSE_70B) if fresh else (SOLO, GX10_VANILLA, LONG_CONTEXT))
    if family in {"coder", "rag"}:  # a model too slow for a single agent would test nothing
        base = dice.choice((DENSE_8B, CLUSTER_TP2) if fresh else (SOLO, GX10_VANILLA))
    slots = dice.choice((8, 16, 48, 128))
    blocks = dice.choice((24_000, 48_000)) if family == "coder" else dice.choice((4_000, 8_000, 24_000))
    profile = replace(
        base,
        max_num_seqs=slots,
        kv_blocks=blocks,
        max_model_len=131_072 if family == "coder" else 49_152,
        max_num_batched_tokens=dice.choice((2048, 8192)),
    )
    ttft_ms = dice.choice((10_000, 20_000) if family in {"coder", "rag"} else (500, 1000, 2000, 4000))
    conditions = f"ttft_{dice.choice(('p90', 'p95'))}_ms={ttft_ms},stream_tps={dice.choice((4, 8, 15))}"
    prompt = dice.choice((64, 1024, 4096) if fresh else (128, 512, 2048))
    output = dice.choice((48, 120, 240) if fresh else (32, 128, 300))
    most = _MOST_CODER if family == "coder" else _MOST
    capacity = Capacity(kind, parse_conditions(conditions, kind), most=most)
    plan = Plan(targets=(), pp=prompt, tg=output, runs=1, duration_s=DEFAULT_S[kind])
    lengths = f"{prompt} + {output} tokens"
    if kind is LoadKind.AGENTS:
        plan = replace(plan, conversations=find_conversations(family), mode=LoadMode.AGENTS)
        lengths = ""
    else:
        plan = replace(plan, mode=LoadMode.OPEN if kind is LoadKind.RATE else LoadMode.STEADY)
    parts = (base.name, f"{slots} slots", f"{blocks * 16 // 1000}k KV", lengths)
    words = f"{', '.join(part for part in parts if part)}: {conditions}"
    plan = replace(plan, capacity=capacity, points=(LoadPoint(kind, 1),))
    return Setup(family, words, profile, plan, capacity)


def run_level(made: Setup, value: float, duration_s: float, seed: str) -> list[LoadEvent]:
    """Simulate one run of a level with requests drawn from `seed`; return its events."""
    time = VirtualTime([Engine(made.profile, seed=seed)])
    way, plan = DirectDestination(time), replace(made.plan, duration_s=duration_s)
    if plan.kind is LoadKind.RATE:
        return _arrivals(time, way, plan, value, seed)
    if plan.kind is LoadKind.CONCURRENCY:
        level = plan.level("s", concurrency_point(int(value)))
        stagger_s = min(_LONGEST_RAMP_S, _RAMP_SHARE * duration_s)
        closed = ClosedLoop(time, way, level, steady_s=duration_s, seed=seed, stagger_s=stagger_s)
        closed.start()
        time.run(duration_s + 600)
        return closed.events
    preset = plan.conversations
    assert preset is not None  # noqa: S101 - of a set-up of agents
    turns = [planned_turns(preset, seed, lane, made.profile.max_model_len) for lane in range(int(value))]
    agents = Conversations(time, way, turns, block_tokens=made.profile.block_tokens)
    agents.start(duration_s, ramp_s=ramp_s(plan), tail_s=tail_s(plan))
    time.run(duration_s + 3000)
    return agents.events


def _arrivals(
    time: VirtualTime, way: DirectDestination, plan: Plan, value: float, seed: str
) -> list[LoadEvent]:
    warm_s, tail = ramp_s(plan), tail_s(plan)
    end_s = warm_s + (plan.duration_s or 0.0)
    due = due_times(parse_pattern("poisson"), LoadPoint(LoadKind.RATE, value), end_s + tail, seed)
    loop = OpenLoop(time, way, lambda _: (plan.pp, plan.tg))
    loop.start(due, (warm_s, end_s), end_s + tail)
    time.run(end_s + tail)
    return loop.events


_SHORT_S, _SHORT_REQUESTS = 300.0, 100.0
_LONG_S, _LONG_REQUESTS = 1800.0, 600.0
"""Least seconds of a run, and least arrivals at a rate."""
_RUNS = 4
_BEYOND, _NEAR, _NEAR_NUMBERS = 1.25, 0.05, 1.0
_GRID, _COARSE = 1.04, 1.15
"""Ratio of neighbouring rates, and of neighbouring levels that have a short run."""
_CERTAIN, _HALF = 0.95, 0.5
_CLEAR, _AT_ONCE = 0.01, 2
"""Runs are made `_AT_ONCE` at a time, until the chance is below `_CLEAR` or above 1 - `_CLEAR`."""
_NEVER = 1e-9


class Truth(NamedTuple):
    """The answer of exhaustive runs."""

    low: float
    """The largest load up to which at least 95 % pass; 0 if there is none."""
    high: float
    """The largest load at which more than 5 % pass; 0 if there is none."""


def truth(made: Setup, seed: int, first: float) -> Truth:
    """Return the answer for a set-up, with requests drawn from `seed`; rates start at `first` / 16.

    First, each level (above 7, and of rates, in steps of 15 %) is run for five minutes, up to a quarter
    above the first that fails. Then the levels near the answer have runs of at least half an hour (rates:
    and 600 requests), further out level by level, until the levels at both ends are certain. The chance
    that such a long run passes follows from the mean and the spread of the shares of requests that met a
    condition. Levels at which between 5 % and 95 % of long runs pass are a band: there the chance of the
    load decides.
    """
    is_rate = made.capacity.kind is LoadKind.RATE
    chances: dict[float, float] = {}
    failed_at = math.inf
    grid = list(_grid(made, first))
    for value in grid:
        if value > _BEYOND * failed_at:
            break
        if value < _COARSE * max(chances, default=0.0) - _NEVER:
            continue
        chances[value] = _chance(made, value, seed, 1, is_long=False)
        if chances[value] < _HALF:
            failed_at = min(failed_at, value)
    answer = _at_least(chances, _HALF)
    reach = _NEAR * answer if is_rate else max(_NEAR_NUMBERS, _NEAR * answer)
    near = [value for value in grid if answer - reach <= value <= answer + reach] or grid[:1]
    exact = {value: _chance(made, value, seed, _RUNS, is_long=True) for value in near}
    for value in reversed([value for value in grid if value < min(exact, default=0.0)]):
        if exact[min(exact)] >= _CERTAIN:
            break
        exact[value] = _chance(made, value, seed, _RUNS, is_long=True)
    for value in [value for value in grid if value > max(exact, default=math.inf)]:
        if exact[max(exact)] <= 1 - _CERTAIN:
            break
        exact[value] = _chance(made, value, seed, _RUNS, is_long=True)
    return Truth(_at_least(exact, _CERTAIN), _at_least(exact, 1 - _CERTAIN + _NEVER))


def _grid(made: Setup, first: float) -> Iterator[float]:
    """Yield the levels to run, ascending: whole numbers, or rates in steps of 4 %."""
    if made.capacity.kind is not LoadKind.RATE:
        yield from (float(one) for one in range(1, int(made.capacity.most) + 1))
        return
    value = first / 16
    while value <= made.capacity.most:
        yield value
        value *= _GRID


def _falling(values: Iterable[float]) -> list[float]:
    """Return the falling values nearest to these (pool adjacent violators).

    Source: Ayer et al., An empirical distribution function for sampling with incomplete information, Annals
    of Mathematical Statistics 26 (1955), 641 to 647.
    """
    blocks: list[list[float]] = []
    for value in values:
        blocks.append([value])
        while len(blocks) > 1 and fmean(blocks[-2]) < fmean(blocks[-1]):
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    return [fmean(block) for block in blocks for _ in block]


def _at_least(chances: dict[float, float], least: float) -> float:
    """Return the largest load that passes with at least the chance `least`, once chances are made to fall."""
    ascending = sorted(chances)
    falling = _falling(chances[value] for value in ascending)
    return max((at for at, one in zip(ascending, falling, strict=True) if one >= least), default=0.0)


def _chance(made: Setup, value: float, seed: int, runs: int, *, is_long: bool) -> float:
    """Return the chance (0 to 1) that a run passes, from `runs` runs, or from fewer if they are clear."""
    judged: list[LoadVerdict] = []
    chance = _HALF
    while len(judged) < runs and _CLEAR < chance < 1 - _CLEAR:
        more = range(len(judged), min(runs, len(judged) + _AT_ONCE))
        judged += [
            _judged(made, value, f"truth {seed}/{value}/{run}/{is_long}", is_long=is_long) for run in more
        ]
        chance = _passes(made, judged)
    return chance


def _passes(made: Setup, judged: list[LoadVerdict]) -> float:
    """Return the chance that a run passes: the lowest of the chances for each condition."""
    chance = fmean(0.0 if one.trouble else 1.0 for one in judged)
    last = 1 if made.capacity.kind is LoadKind.RATE else len(made.capacity.conditions)
    for number in range(-last, 0):
        parts = [one.shares[number] for one in judged if one.shares[number].count]
        if not parts:
            continue
        share = fmean(one.share for one in parts)
        binomial = math.sqrt(share * (1 - share) / fmean(one.count for one in parts))
        spread = max(binomial, stdev([one.share for one in parts]) if len(parts) > 1 else 0.0)
        needed = parts[0].needed
        passes = float(share >= needed) if spread == 0 else 1 - NormalDist(share, spread).cdf(needed)
        chance = min(chance, passes)
    return chance


def _judged(made: Setup, value: float, seed: str, *, is_long: bool) -> LoadVerdict:
    capacity = made.capacity
    seconds, requests = (_LONG_S, _LONG_REQUESTS) if is_long else (_SHORT_S, _SHORT_REQUESTS)
    if capacity.kind is LoadKind.RATE:
        seconds = max(seconds, requests / value)
    traces = collect(run_level(made, value, seconds, seed))
    unstable = is_unstable(traces, seconds) if capacity.kind is LoadKind.RATE else ""
    return judge(capacity, traces, max_error_share=0.01, unstable=unstable)


def is_unstable(traces: list[RequestTrace], seconds: float) -> str:
    """Return "unstable" if latencies grow over the `seconds` of a run at a rate, else ""."""
    begin = min((one.due for one in traces if one.due is not None), default=0.0)
    figures = open_loop_figures(traces, begin, begin + seconds)
    return "unstable" if figures is not None and figures.unstable else ""


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
    def good(self) -> bool:
        """Whether the answer is in the band of the truth or within one of it (rates: within 10 %)."""
        low, high = self.truth.low, self.truth.high
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
        self.median_s: float | None = None
        self.each_per_s: float | None = None

    def judge(self, value: float, run: int, *, decides: bool = False) -> LoadVerdict:
        """Run a level once more; return the verdict from all its runs so far."""
        capacity = self.made.capacity
        point = LoadPoint(capacity.kind, value)
        plan = level_plan(self.made.plan, point, self.median_s, self.each_per_s, decides=decides)
        duration_s = plan.duration_s or 60.0
        traces = collect(run_level(self.made, value, duration_s, f"{self.seed}/{value}/{run}"))
        for one in traces:
            one.run = run
        is_rate = capacity.kind is LoadKind.RATE
        before_s = 0.0 if plan.mode is LoadMode.STEADY else ramp_s(plan)
        self.seconds += before_s + duration_s + _REST_S
        if is_rate:
            self.unstable[value] = is_unstable(traces, duration_s) or self.unstable.get(value, "")
        self.traces.setdefault(value, []).extend(traces)
        self.durations[value] = self.durations.get(value, 0.0) + duration_s
        found = judge(
            capacity, self.traces[value], max_error_share=0.01, unstable=self.unstable.get(value, "")
        )
        self.median_s = found.median_s or self.median_s
        if found.requests:
            self.each_per_s = found.requests / (value * self.durations[value])
        return found


def search(made: Setup, seed: int) -> tuple[CapacitySearch, Measured]:
    """Run the capacity search on a set-up; return (the search, its runs)."""
    capacity, measured, first = made.capacity, Measured(made, seed), 1.0
    if capacity.kind is LoadKind.RATE:
        one = replace(capacity, kind=LoadKind.CONCURRENCY)
        plan = replace(made.plan, mode=LoadMode.STEADY, capacity=one)
        alone = collect(run_level(made._replace(plan=plan), 1, 120.0, f"{seed}"))
        first = 1 / median(one.e2e_s or 1.0 for one in alone if one.ok)
    found = CapacitySearch(capacity, first)
    while (value := found.next()) is not None:
        run, decides = found.runs.get(value, 0), found.fails is not None
        found.add(value, measured.judge(value, run, decides=decides))
    return found, measured


def row(seed: int) -> Row:
    """Return the answers of both ways for the set-up drawn from `seed`."""
    made = setup(seed)
    found, measured = search(made, seed)
    return Row(
        seed,
        made.family,
        made.words,
        found.holds or 0.0,
        found.interval,
        truth(made, seed, next(iter(found.runs))),
        sum(found.runs.values()),
        measured.seconds / 60,
        (_usual_s(made.plan) / 60, most_seconds(made.plan) / 60),
        made.capacity.kind is LoadKind.RATE,
    )


def _usual_s(plan: Plan) -> float:
    """Return how long a search lasts where no decision is close."""
    return (
        0.0
        if plan.capacity is None
        else CapacitySearch(plan.capacity).levels_left() * LEVEL_OVERHEAD * (plan.duration_s or 0.0)
    )


def table(rows: Sequence[Row]) -> list[str]:
    """Return each family as Markdown, and a summary; minutes are those of virtual time."""
    cells = []
    for family, group in groupby(sorted(rows, key=lambda one: one.family), key=lambda one: one.family):
        part = list(group)
        minutes = sorted(one.minutes for one in part)
        usual, most = (median(one.forecast[end] for one in part) for end in (0, 1))
        good = sum(one.good for one in part)
        span = f"{median(minutes):.0f} ({minutes[0]:.0f} to {minutes[-1]:.0f})"
        runs = f"{median(one.runs for one in part):.0f}"
        cells.append((family, len(part), good, runs, span, f"{usual:.0f} to {most:.0f}"))
    heads = ("family", "set-ups", "agree", "runs", "min, median (range)", "forecast, min")
    good, inside = sum(one.good for one in rows), sum(one.inside for one in rows)
    agree = f"{good} of {len(rows)} agree within one (rates: 10 %)"
    words = f"{agree}; the exhaustive answer lies in the search's interval in {inside}."
    return [*tables.table(heads, cells), "", words]


def main() -> int:
    """Print the table; return 1 if an answer does not agree, else 0."""
    parser = tables.options(__doc__, runs=20, seed=FRESH_SEED)
    parser.add_argument("--only", choices=FAMILIES, help="one kind of load")
    options = parser.parse_args()
    chosen = range(options.seed, options.seed + options.runs)
    rows: list[Row] = []
    for one in tables.in_processes(row, [at for at in chosen if options.only in {None, setup(at).family}]):
        rows.append(one)
        line = f"{one.seed} {one.family}: {one.words}: {one.found:g} {one.interval}, {one.truth}"
        print(line, file=sys.stderr, flush=True)
    tables.publish("capacity.py", table(rows), write=options.write)
    return 0 if all(one.good for one in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
