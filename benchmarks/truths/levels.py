"""Check what a sweep's level reports about its servers, on servers of known load.

The servers are simulated here in a few lines: each step makes one token per running request; a request waits
while all slots are taken or while the step admits no more prompts. Their running and waiting requests are
known at any time. The judged code has the data of a sweep: the starts and ends of requests, and gauges and
counters polled every half second, at slightly different times for each server.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from tables import Figure, relative

from sparktop.model.engine import EngineSample, Histogram, LaneSample
from sparktop.model.load import EndReason, FirstToken, LoadEvent, RequestEnded, RequestStarted
from sparktop.model.node import GpuReading, MemoryReading, NodeSample
from sparktop.store import SourceKey
from sparktop.sweep.generator.wire import WorkerTarget
from sparktop.sweep.plan.plan import Guard, Plan, SweepTarget, TargetKind
from sparktop.sweep.result.level import largest_run_share
from sparktop.sweep.result.measure import collect
from sparktop.sweep.result.results import LevelResult
from sparktop.sweep.run.guard import GuardWatch
from sparktop.sweep.run.level import LevelRecord
from sparktop.sweep.run.preparation import PreparedTarget
from sparktop.sweep.run.server_side import ServerLog, node_point, server_point
from sparktop.sweep.terms.definitions import QUEUE_LIMITED

AREA = "levels"
NAMES = ("spark-a", "spark-b")
URLS = {name: f"http://127.0.0.1/{name}" for name in NAMES}
LOOK_S = 0.5
REST_S = 2.0
"""Seconds between the last request of a run and the first of the next, if a level pauses at all."""


@dataclass(slots=True)
class Server:
    """One simulated server with its complete history."""

    slots: int = 48
    admits: int = 1000
    """Most prompts that one step admits."""
    base_s: float = 0.03
    row_s: float = 0.0005
    queue: list[str] = field(default_factory=list)
    running: dict[str, int] = field(default_factory=dict)
    """Tokens left, by running request."""
    begins: list[float] = field(default_factory=list)
    """Times at which the states below began."""
    states: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    """(running, waiting, tokens so far, steps so far, requests finished so far)."""
    rows: int = 0
    """Running requests, summed over all steps."""
    steps: int = 0
    finished: int = 0
    busy_s: float = 0.0
    request_s: float = 0.0
    """Seconds that requests ran, summed over requests."""
    full: bool = False
    """Whether a request ever waited while every slot was taken."""

    def note(self, at: float) -> None:
        """Record the current state, from `at` on."""
        self.begins.append(at)
        self.states.append((len(self.running), len(self.queue), self.rows, self.steps, self.finished))

    def state(self, at: float) -> tuple[int, int, int, int, int]:
        """Return the state at a time."""
        index = bisect_right(self.begins, at) - 1
        return self.states[index] if index >= 0 else (0, 0, 0, 0, 0)

    def burst(self, at: float, requests: Sequence[str], tokens: int) -> dict[str, tuple[float, float]]:
        """Serve requests that arrive at once; return (time of first token, time of last token) by request."""
        self.queue = list(requests)
        first: dict[str, float] = {}
        last: dict[str, tuple[float, float]] = {}
        now = at
        while self.queue or self.running:
            taken = min(len(self.queue), self.slots - len(self.running), self.admits)
            for name in self.queue[:taken]:
                self.running[name] = tokens
            del self.queue[:taken]
            self.full |= bool(self.queue) and len(self.running) == self.slots
            self.note(now)
            batch = len(self.running)
            step_s = self.base_s + self.row_s * batch
            now += step_s
            self.busy_s += step_s
            self.request_s += step_s * batch
            self.steps += 1
            self.rows += batch
            for name in list(self.running):
                first.setdefault(name, now)
                self.running[name] -= 1
                if not self.running[name]:
                    del self.running[name]
                    self.finished += 1
                    last[name] = (first[name], now)
        self.note(now)
        return last


@dataclass(slots=True)
class Measured:
    """A level as sparktop reports it, and the servers that it ran on."""

    level: LevelResult
    servers: dict[str, Server]
    ran_most: int
    """Most requests that truly ran at one moment, over all servers."""


Choice = Callable[[int, int], str]
"""Function from (number of the run, number of the request) to the server of the request."""


def measure(
    concurrency: int,
    choose: Choice,
    *,
    runs: int = 3,
    tokens: int = 128,
    rest_s: float = REST_S,
    skew_s: float = 0.01,
    counts_steps: bool = True,
    slots: int = 48,
    admits: int = 1000,
    offset_s: float = 0.0,
) -> Measured:
    """Simulate a level on two servers; return it as judged by sparktop."""
    servers = {name: Server(slots=slots, admits=admits) for name in NAMES}
    for server in servers.values():
        server.note(0.0)
    target = SweepTarget("proxy", "http://127.0.0.1/proxy", TargetKind.ROUTER, backends=URLS)
    plan = Plan((target,), (concurrency,), pp=100, tg=tokens, runs=runs)
    prepared = PreparedTarget(
        target, WorkerTarget(target.url), backends=NAMES, slots=dict.fromkeys(NAMES, slots)
    )
    record = LevelRecord(plan, prepared, plan.level(target, concurrency))
    now = 10.0
    for run in range(runs):
        began = now
        chosen = {f"{run}-{number}": choose(run, number) for number in range(concurrency)}
        for name, server in servers.items():
            mine = [request for request, where in chosen.items() if where == name]
            ends = server.burst(began, mine, tokens) if mine else {}
            for request, (first, last) in ends.items():
                record.events += request_events(request, run, (began, first, last), tokens, name)
                now = max(now, last)
        record.spans.append((began, now))
        record.run_s.append(now - began)
        now += rest_s
    record.traces = collect(record.events)
    log = ServerLog()
    watch(servers, log, now, skew_s, offset_s, counts_steps=counts_steps)
    before = {name: server_point(look(server, 0.0, counts_steps)) for name, server in servers.items()}
    after = {name: server_point(look(server, now, counts_steps)) for name, server in servers.items()}
    record.add_growth(before, before, after)
    moments = sorted(at for server in servers.values() for at in server.begins)
    most = max(sum(server.state(at)[0] for server in servers.values()) for at in moments)
    return Measured(record.result(log, {}), servers, most)


def request_events(
    name: str, run: int, times: tuple[float, float, float], tokens: int, served_by: str
) -> Iterator[LoadEvent]:
    """Yield the events of a request in the load generator."""
    start, first, last = times
    yield RequestStarted(name, start, run, 100)
    yield FirstToken(name, first, tokens)
    yield RequestEnded(
        name, last, EndReason.LENGTH, prompt_tokens=100, generated_tokens=tokens, served_by=served_by
    )


def look(server: Server, at: float, counts_steps: bool) -> EngineSample:  # noqa: FBT001 - one of two pages
    """Return the sample of a server's page at a time."""
    running, waiting, rows, steps, finished = server.state(at)
    histogram = Histogram((float("inf"),), (float(steps),), float(rows)) if counts_steps else None
    lane = LaneSample(
        "0",
        running=float(running),
        waiting=float(waiting),
        kv_cache_percent=10.0,
        generation_tokens=float(rows),
        finished={"length": float(finished)},
        step_tokens=histogram,
    )
    return EngineSample(at, "vllm", (lane,), start_time=1.0)


def watch(
    servers: dict[str, Server],
    log: ServerLog,
    until: float,
    skew_s: float,
    offset_s: float,
    *,
    counts_steps: bool,
) -> None:
    """Poll both servers every half second, the second one `skew_s` seconds later."""
    at = offset_s
    while at < until:
        for number, (name, server) in enumerate(servers.items()):
            log.accept(SourceKey.backend(name), look(server, at + number * skew_s, counts_steps))
        at += LOOK_S


def herded(run: int, _number: int) -> str:
    """Send each run to one server, the next run to the other."""
    return NAMES[run % 2]


def even(_run: int, number: int) -> str:
    """Send the requests of each run to the servers in turn."""
    return NAMES[number % 2]


def figures(*, short: bool) -> Iterator[Figure]:
    """Check the split, the batch, the most requests running, the queue mark and the guard."""
    yield from split_figures()
    yield from batch_figures(short=short)
    yield from most_figures(short=short)
    yield from queue_figures(60 if short else 1500)
    yield from guard_figures()


def split_figures() -> Iterator[Figure]:
    """Check the largest share of a run, while the totals of all runs are even."""
    for name, choose, truth in (("each run to one server", herded, 100.0), ("dealt in turn", even, 50.0)):
        made = measure(64, choose, runs=4)
        title = f"largest share of a run, c = 64, {name} (totals are even)"
        yield relative(AREA, title, truth, largest_run_share(made.level), 0.1, " %")


def batch_figures(*, short: bool) -> Iterator[Figure]:
    """Check the batch while a server computes, from its counted steps and from polls alone."""
    for concurrency, choose, how in (
        (1, even, "c = 1, all to one server"),
        (32, even, "c = 32, dealt in turn"),
        (64, herded, "c = 64, each run to one server of 48 slots"),
    ):
        made = measure(concurrency, choose, runs=4)
        server, shown = made.servers["spark-a"], made.level.busy_batch.get("spark-a")
        truth = server.rows / server.steps
        yield relative(AREA, f"busy batch of spark-a, steps counted, {how}", truth, shown, 0.1)
        made = measure(concurrency, choose, runs=8 if short else 40, counts_steps=False)
        server, shown = made.servers["spark-a"], made.level.busy_batch.get("spark-a")
        truth = server.request_s / server.busy_s
        yield relative(AREA, f"busy batch of spark-a, from looks, {how}", truth, shown, 10.0)


def most_figures(*, short: bool) -> Iterator[Figure]:
    """Check "ran at most" with servers polled at different times, as each run moves to the other server."""
    for concurrency, slots in ((32, 48), (64, 48)):
        shown, truths = [], []
        for number in range(20 if short else 200):
            made = measure(
                concurrency,
                herded,
                runs=6,
                rest_s=0.0,
                slots=slots,
                skew_s=0.002 * (number % 120),
                offset_s=0.025 * (number % 20),
            )
            known = made.level.server
            shown.append(known.running_max if known is not None else None)
            truths.append(made.ran_most)
        over = sum(one is not None and one > truth for one, truth in zip(shown, truths, strict=True))
        missing = sum(one is None or one < 0.9 * truth for one, truth in zip(shown, truths, strict=True))
        seen = [one for one in shown if one is not None]
        yield Figure(
            AREA,
            f"ran at most, c = {concurrency}, each run to the other server, looks up to 238 ms apart",
            f"{max(truths)}",
            f"{min(seen, default=0):.0f} to {max(seen, default=0):.0f}",
            f"{over} above, {missing} more than 10 % below of {len(shown)}",
            "never above, at most 10 % below",
            holds=not over and not missing,
        )


def guard_figures() -> Iterator[Figure]:
    """Check where a sweep with default settings stops as a machine runs out of memory, or heats up."""
    gib, every_s = 2**30, 2.0
    watch = GuardWatch(Guard())
    losing = [40.0 - 0.7 * number for number in range(60)]
    heating = [60.0 + 0.45 * number for number in range(100)]
    for name, unified, truth, readings in (
        ("memory, unified", True, _first(losing, lambda left: left < 8.0), [(left, 60.0) for left in losing]),
        ("heat, unified", True, _first(heating, lambda c: c > 92.0), [(40.0, c) for c in heating]),
        ("memory, a GPU's own", False, None, [(left, 60.0) for left in losing]),
    ):
        shown = None
        for number, (left, heat) in enumerate(readings):
            memory = MemoryReading(unified=unified, headroom_bytes=round(left * gib))
            sample = NodeSample(number * every_s, memory=memory, gpus=(GpuReading(0, temperature_c=heat),))
            if watch.check_node("spark-a", node_point(sample)) is not None:
                shown = number
                break
        words = ["goes on" if one is None else f"stops at look {one}" for one in (truth, shown)]
        title = f"guard without any setting, {name}"
        yield Figure(AREA, title, words[0], words[1], "–", "the same look", holds=truth == shown)


def _first(values: Sequence[float], beyond: Callable[[float], bool]) -> int:
    return next(number for number, value in enumerate(values) if beyond(value))


def queue_figures(levels: int) -> Iterator[Figure]:
    """Check the queue mark on random levels; requests that wait only for prompts are not a queue."""
    random = Random(20261122)  # noqa: S311 - reproducible levels, no secrets
    missed, false, queued = 0, 0, 0
    for _ in range(levels):
        concurrency, bias = random.choice((8, 24, 40, 56, 64, 72, 96)), random.choice((0.0, 0.2, 0.5, 1.0))
        sides = [random.random() for _ in range(3 * concurrency)]

        def choose(run: int, number: int, bias: float = bias, sides: list[float] = sides) -> str:
            return NAMES[sides[run * (len(sides) // 3) + number] < bias]

        made = measure(
            concurrency,
            choose,
            slots=random.choice((32, 48)),
            admits=random.choice((4, 1000)),
            offset_s=random.random() * LOOK_S,
        )
        truth = any(server.full for server in made.servers.values())
        marked = any(one.code == QUEUE_LIMITED for one in made.level.validity)
        queued += truth
        missed += truth and not marked
        false += marked and not truth
    yield Figure(
        AREA,
        f"queue mark, {levels} levels of 8 to 96 requests over two servers of 32 or 48 slots",
        f"{queued} queued for a slot",
        f"{queued - missed + false} marked",
        f"{missed} missed, {false} false",
        "none",
        holds=not missed and not false,
    )
