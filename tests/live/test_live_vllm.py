"""Our figures compared with those of two real vLLM servers under load.

Two references, both parsed by the Prometheus client: the bytes that our source received ("same page"), and
pages that the test itself fetches at the moment of each of our polls ("own page").
"""

from __future__ import annotations

import asyncio
import json
import math
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from sparktop.model.engine import EngineSample
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.snapshot import BackendView, Latency
from sparktop.model.targets import BackendTarget, Watch
from sparktop.net.client import Response
from sparktop.rates import EDGE_SLACK_S
from sparktop.sources.engine_http import EngineSource
from sparktop.sources.source import Source
from sparktop.store import Reading, SourceKey, Store
from sparktop.watch.monitor import Monitor
from sparktop.watch.ways import RealWays

pytestmark = [pytest.mark.live, pytest.mark.timeout(540)]

CONCURRENCY = (14, 5)
"""More than the eight slots of a server, and fewer."""
POLLS = 50
LAST_POLLS = 10
MOST_TIMEOUTS = 3
RATE_WINDOW_S = 10.0
WINDOW_REACH_S = RATE_WINDOW_S + EDGE_SLACK_S
"""How old the first sample of our window may be."""
TOLERANCE_PERCENT = 3.0
OBSERVE_S = 180.0
LOAD_CLIENT = Path(__file__).with_name("load_client.py")


class Page:
    """A metrics page parsed by the Prometheus client, and the time at which its answer began."""

    def __init__(self, at: float, body: bytes) -> None:
        self.at = at
        self.body = body
        self._values: dict[str, float] = {}
        self._buckets: dict[str, dict[float, float]] = {}
        for family in text_string_to_metric_families(body.decode()):
            for sample in family.samples:
                if "le" in sample.labels:
                    bound = float(sample.labels["le"])
                    buckets = self._buckets.setdefault(sample.name, {})
                    buckets[bound] = buckets.get(bound, 0.0) + sample.value
                elif sample.labels.get("source", "local_compute") == "local_compute":
                    self._values[sample.name] = self._values.get(sample.name, 0.0) + sample.value

    def value(self, name: str) -> float:
        """Return the sum over a metric's samples; of prompt tokens by source, only computed ones."""
        return self._values[f"vllm:{name}"]

    def buckets(self, name: str) -> dict[float, float]:
        """Return a histogram's cumulative counts by bound."""
        return self._buckets[f"vllm:{name}_bucket"]


@dataclass
class Record:
    """All records of one server, poll by poll."""

    polled: list[Response] = field(default_factory=list)
    """What our source received."""
    fetched: list[tuple[float, bytes]] = field(default_factory=list)
    """What the test fetched at the same moment."""
    views: list[BackendView] = field(default_factory=list)
    """What our store made of each."""
    failures: list[Reading] = field(default_factory=list)
    version: str = ""


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    server: str
    quantity: str
    witness: str
    ours: str
    theirs: str
    deviation: str
    holds: bool


Fetch = Callable[[str], Awaitable[tuple[float, bytes]]]
"""Gets a page of the server at a URL, and when its answer began."""


class TappedSource(EngineSource):
    """Our own source, which also fetches the page for the test at each poll."""

    def __init__(self, target: BackendTarget, record: Record, fetch: Fetch) -> None:
        super().__init__(target)
        self._record = record
        self._fetch = fetch

    async def _get(self, path: str, deadline_s: float) -> Response:
        if path != "/metrics":
            return await super()._get(path, deadline_s)
        own = asyncio.ensure_future(self._fetch(self._target.url))
        try:
            answer = await super()._get(path, deadline_s)
            self._record.fetched.append(await own)
        finally:
            own.cancel()
        self._record.polled.append(answer)
        return answer


class TappedWays(RealWays):
    """The monitor's usual sources, with a `TappedSource` for each backend."""

    def __init__(self, records: dict[str, Record], fetch: Fetch) -> None:
        self._records = records
        self._fetch = fetch

    def backends(self, targets: Sequence[BackendTarget]) -> Sequence[Source]:
        """Return a `TappedSource` for each backend."""
        return [TappedSource(target, self._records[target.name], self._fetch) for target in targets]


class WitnessedStore(Store):
    """Our own store, which keeps the view after each reading."""

    def __init__(self, watch: Watch, records: dict[str, Record], clock: Callable[[], float]) -> None:
        super().__init__(watch, clock=clock)
        self.enough = asyncio.Event()
        self._records = records

    def accept(self, key: SourceKey, reading: Reading, took_ms: float | None = None) -> None:
        """Accept a reading and keep the resulting view."""
        super().accept(key, reading, took_ms)
        record = self._records[key.name]
        if isinstance(reading, EngineSample):
            record.views.append(next(view for view in self.snapshot().backends if view.name == key.name))
        else:
            record.failures.append(reading)
        if all(len(one.views) >= POLLS for one in self._records.values()):
            self.enough.set()


def watch_of(urls: Sequence[str]) -> Watch:
    targets = tuple(BackendTarget(f"vllm-{index}", url) for index, url in enumerate(urls, 1))
    return Watch(backends=targets)


async def observe(urls: Sequence[str]) -> dict[str, Record]:
    """Watch the servers under load until each was polled often enough."""
    watch = watch_of(urls)
    records = {target.name: Record() for target in watch.backends}
    loads = (f"{url}={count}" for url, count in zip(urls, CONCURRENCY, strict=True))
    async with aiohttp.ClientSession() as session, asyncio.timeout(OBSERVE_S):

        async def fetch(url: str) -> tuple[float, bytes]:
            async with session.get(f"{url}/metrics") as response:
                return time.monotonic(), await response.read()

        for target in watch.backends:
            async with session.get(f"{target.url}/version") as response:
                records[target.name].version = (await response.json())["version"]
        store = WitnessedStore(watch, records, time.monotonic)
        monitor = Monitor(watch, store, ways=TappedWays(records, fetch))
        load = await asyncio.create_subprocess_exec(
            sys.executable, str(LOAD_CLIENT), *loads, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        try:
            await monitor.start()
            await store.enough.wait()
        finally:
            await monitor.stop()
            assert load.stdin is not None
            load.stdin.close()
            out, _ = await load.communicate()
    sys.stdout.write(f"\nload: {out.decode()}")
    assert json.loads(out)["failed"] == 0
    return records


@pytest.fixture(scope="module")
def records(servers: list[str]) -> dict[str, Record]:
    """Return the records of two servers under load."""
    return asyncio.run(observe(servers))


def compare(records: dict[str, Record]) -> list[Row]:
    return [row for name, record in records.items() for row in rows_of(name, record)]


def rows_of(name: str, record: Record) -> Iterator[Row]:
    """Compare everything that is shown of a server with its pages."""
    count = len(record.views)  # a poll cut off at the end has pages but no view
    views = record.views[:count]
    same = [Page(answer.at, answer.body) for answer in record.polled[:count]]
    own = [Page(at, body) for at, body in record.fetched[:count]]
    yield from gauges(name, views, same)
    yield from rates(name, views, same, own)
    yield from latencies(name, views[-1], own)
    # If the models are computed on the same CPU, a server may hang for two seconds now and then.
    late = sum(isinstance(one, Failure) and one.kind is FailureKind.TIMEOUT for one in record.failures)
    holds = late == len(record.failures) <= MOST_TIMEOUTS
    shown = f"{len(record.failures)} failed", f"{late} timed out"
    yield Row(name, f"{count} polls", "our source", *shown, "", holds)
    versions = (views[-1].version or "–", record.version)
    if views[-1].version:  # a replay never asks
        yield Row(name, "version", "own request", *versions, "", versions[0] == versions[1])


def gauges(name: str, views: list[BackendView], same: list[Page]) -> Iterator[Row]:
    """Compare values that a page has directly, at every poll."""
    for quantity, field_name, metric, factor in (
        ("running", "running", "num_requests_running", 1),
        ("waiting", "waiting", "num_requests_waiting", 1),
        ("KV cache %", "kv_cache_percent", "kv_cache_usage_perc", 100),
        ("generated tokens", "generation_tokens", "generation_tokens_total", 1),
        ("prompt tokens", "prompt_tokens", "prompt_tokens_total", 1),
        ("preemptions", "preemptions", "num_preemptions_total", 1),
    ):
        ours: list[float | None] = [getattr(view, field_name) for view in views]
        theirs = [factor * page.value(metric) for page in same]
        wrong = sum(
            value is None or not math.isclose(value, told, rel_tol=1e-9, abs_tol=1e-9)
            for value, told in zip(ours, theirs, strict=True)
        )
        known = [value for value in ours if value is not None]
        differ = f"{wrong} of {len(ours)} polls"
        yield Row(name, quantity, "same page", span(known), span(theirs), differ, wrong == 0)


def rates(name: str, views: list[BackendView], same: list[Page], own: list[Page]) -> Iterator[Row]:
    """Compare rates with counter differences between pages of the same polls."""

    def apart_s(end: int) -> float:
        edges = (end, window_start(same, window_start(same, end)))
        return sum(abs(own[edge].at - same[edge].at) for edge in edges)

    # Of the last polls, use the one whose window edges were read by source and test at nearly the same
    # time: at 100 tokens a second each 10 ms between the two is a token.
    end = min(range(len(same) - LAST_POLLS, len(same)), key=apart_s)
    middle = window_start(same, end)
    start = window_start(same, middle)
    late, early = views[end].generation_tps, views[middle].generation_tps
    ours = None
    if late is not None and early is not None:
        late_s, early_s = same[end].at - same[middle].at, same[middle].at - same[start].at
        ours = (late * late_s + early * early_s) / (late_s + early_s)
    counter = "generation_tokens_total"
    yield near(
        name, "generation tok/s, two windows of 10 s", "own page", ours, rate(own, counter, start, end)
    )
    yield near(name, "generation tok/s, 10 s", "same page", late, rate(same, counter, middle, end))
    computed = rate(same, "prompt_tokens_by_source_total", middle, end)
    yield near(name, "prompt tok/s, 10 s", "same page", views[end].prompt_tps, computed)


def window_start(pages: list[Page], end: int) -> int:
    """Return the index of the oldest page within ten seconds before another."""
    return next(index for index, page in enumerate(pages) if page.at >= pages[end].at - WINDOW_REACH_S)


def latencies(name: str, view: BackendView, own: list[Page]) -> Iterator[Row]:
    """Compare the time to first token with the histogram's growth since watching began."""
    before, after = (page.buckets("time_to_first_token_seconds") for page in (own[0], own[-1]))
    filled = {bound: after[bound] - before[bound] for bound in sorted(after)}
    half = filled[math.inf] / 2
    bounds = [0.0, *filled]
    low, high = next(edges for edges in pairwise(bounds) if filled[edges[1]] >= half)
    ttft: Latency = view.ttft
    p50 = ttft.p50.seconds if ttft.p50 else math.nan
    inside = low <= p50 <= high
    where = "in the bucket" if inside else "in another bucket"
    yield Row(name, "TTFT p50", "own page", f"{p50:.3f} s", f"{low:g}…{high:g} s", where, inside)
    total, count = (
        own[-1].value(f"time_to_first_token_seconds_{part}")
        - own[0].value(f"time_to_first_token_seconds_{part}")
        for part in ("sum", "count")
    )
    yield near(name, "TTFT mean, ms", "own page", (ttft.mean_s or math.nan) * 1e3, total / count * 1e3)


def rate(pages: list[Page], name: str, start: int, end: int) -> float:
    return (pages[end].value(name) - pages[start].value(name)) / (pages[end].at - pages[start].at)


def near(server: str, quantity: str, witness: str, ours: float | None, theirs: float) -> Row:
    percent = math.nan if ours is None or not theirs else 100 * (ours - theirs) / theirs
    holds = abs(percent) <= TOLERANCE_PERCENT
    shown = "–" if ours is None else f"{ours:.1f}"
    return Row(server, quantity, witness, shown, f"{theirs:.1f}", f"{percent:+.2f} %", holds)


def table(rows: list[Row]) -> str:
    lines = [
        "| server | quantity | ours | theirs | read from | deviation | |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.server} | {row.quantity} | {row.ours} | {row.theirs} | {row.witness} | {row.deviation} "
        f"| {'ok' if row.holds else 'WRONG'} |"
        for row in rows
    ]
    return "\n".join(lines)


def span(values: list[float]) -> str:
    return f"{min(values):.5g}…{max(values):.5g}" if values else "–"


def test_our_figures_are_those_of_the_servers(records: dict[str, Record]) -> None:
    """Every figure shown of a real server under load equals that from its own counters."""
    rows = compare(records)
    sys.stdout.write(f"\n{table(rows)}\n")
    assert [row for row in rows if not row.holds] == []


def test_the_load_was_one_that_shows(records: dict[str, Record]) -> None:
    """The load was sufficient: one server queued, the other did not, both ran several requests."""
    full, easy = (record.views for record in records.values())
    assert max(view.running or 0 for view in full) >= 6
    assert max(view.waiting or 0 for view in full) >= 2
    assert max(view.running or 0 for view in easy) >= 3
    assert all(record.views[-1].generation_tps for record in records.values())
