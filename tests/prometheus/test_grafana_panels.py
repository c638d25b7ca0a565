"""Our figures beside those of a real Prometheus, asked with the PromQL of vLLM's own Grafana board.

Prometheus and our monitor read the same servers once a second for three minutes, each by itself; our monitor
is started in step with Prometheus' scrapes, so that both windows can have the same edges. Every 15 s one poll
is compared with what Prometheus answers for the same instant. Of the polls of those 15 s it is the one at
whose three edges (now, 10 s and 60 s ago) the generated tokens that both had read lie closest together: where
no engine step lies between two readings they show the same. (One request more or less in a
window does not make either wrong.) Of several such polls it is the one whose stamps lie closest: we stamp a
reading when its answer begins, Prometheus when its scrape is due, so that a server that takes 0.3 s to
answer at an edge makes 3 % of a rate over 10 s. The instant is shifted by less than an interval, so that
Prometheus' window, too, ends and begins with these readings: without that choice one window may hold ten
samples and the other eleven, with whole prompts between them.

What `rate()` adds to the difference of the first and the last sample in its window (extrapolatedRate in
promql/functions.go; seen with 2.42):

* nothing while both edges are less than 1.1 intervals away: counted / time between the samples is then also
  counted / window after extrapolation. This is our own figure;
* after a missed scrape at an edge half an interval instead of the way to the edge: with scrapes 1 s apart up
  to 1.5 / 60 = 2.5 % too low in 60 s, and 15 % in 10 s;
* no more to the left than a counter would have needed to grow from zero: a counter, or a bucket, whose first
  value in the window is 0 comes out up to 1 / 60 = 1.7 % too low in 60 s, and 10 % in 10 s. Buckets of one
  histogram differ in this, so quantiles move by up to 1.7 % of the observations.

The tolerance is for PromQL's own value.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from sparktop.demo.command import DemoCluster
from sparktop.model.snapshot import Quantile
from sparktop.panels.parts.figures import latency_row, quantile_text
from tests.live.load import load
from tests.prometheus.comparison import Row, ask, judge
from tests.prometheus.instants import matched_instants
from tests.prometheus.prometheus_server import Prometheus, prometheus
from tests.prometheus.recording import Poll, record
from tests.prometheus.scripted_servers import SCRIPTS, scripted_servers

pytestmark = [pytest.mark.live, pytest.mark.prometheus, pytest.mark.timeout(900)]

RECORD_S = 180.0
CONCURRENCY = (14, 5)
"""More than the eight slots of a real server, and fewer."""


@dataclass(frozen=True)
class Run:
    """Three minutes of some servers; everything by server."""

    polls: Mapping[str, list[Poll]]
    rows: Mapping[str, list[Row]]


async def watch(urls: Mapping[str, str], folder: Path, *, simulated: bool) -> Run:
    """Watch the same servers with Prometheus and with our monitor, and compare."""
    async with AsyncExitStack() as stack:
        if simulated:
            urls = {**urls, **await stack.enter_async_context(scripted_servers())}
        url = stack.enter_context(prometheus(urls, folder))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        asked = Prometheus(url, session)
        if simulated:
            polls = await record(urls, asked, RECORD_S)
        else:
            async with load(
                *(f"{url}={count}" for url, count in zip(urls.values(), CONCURRENCY, strict=True))
            ):
                polls = await record(urls, asked, RECORD_S)
        answers = {
            name: await ask(name, await matched_instants(name, polls[name], asked), asked) for name in urls
        }
    return Run(polls, {name: judge(name, answers[name], polls[name]) for name in urls})


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Two simulated engines under moving load, and the scripted servers."""
    with DemoCluster() as cluster:
        urls = {target.name: target.url for target in cluster.targets}
        return asyncio.run(watch(urls, tmp_path_factory.mktemp("simulated"), simulated=True))


@pytest.fixture(scope="module")
def real(vllm_servers: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Two real vLLM servers under load."""
    return asyncio.run(watch(vllm_servers, tmp_path_factory.mktemp("real"), simulated=False))


@pytest.fixture(scope="module", params=["simulated", "real"])
def run(request: pytest.FixtureRequest) -> Run:
    """Each of the two runs in turn."""
    found: Run = request.getfixturevalue(request.param)
    return found


def wrong(rows: Mapping[str, list[Row]]) -> list[Row]:
    return [row for those in rows.values() for row in those if not row.holds]


def test_what_we_show_is_what_prometheus_says(run: Run) -> None:
    """Rates, means, quantiles and gauges are those of Prometheus, and so is their absence."""
    assert wrong(run.rows) == []


def test_the_load_was_one_that_shows(run: Run) -> None:
    """The engines were busy at most instants, and their load moved."""
    for rates in (
        [row.answer.known or 0.0 for row in rows if row.answer.panel.name == "generation tok/s"]
        for name, rows in run.rows.items()
        if name not in SCRIPTS
    ):
        assert sum(rate > 0 for rate in rates) > len(rates) / 2
        assert max(rates) > min(rates)


def test_the_words_of_the_screen_are_those_of_the_buckets(run: Run) -> None:
    """A quantile has "<" in the first bucket there, ">" at its last finite bound, "≤" in a wide one."""
    for row in (row for rows in run.rows.values() for row in rows):
        theirs, bounds = row.answer.known, row.answer.bounds
        if isinstance(row.ours, Quantile) and theirs is not None:
            wide = "≤" if row.ours.bucket_s else ""
            sign = "<" if theirs <= bounds[0] else ">" if theirs == bounds[-2] else wide
            text = quantile_text(row.ours).strip()
            assert text[0] == sign if sign else text[0].isdigit(), row


def test_the_scripted_servers_showed_every_word(simulated: Run) -> None:
    """A first bucket, a last one, too few requests and no traffic were all compared."""
    texts = {
        "".join(text for text, _ in latency_row("", getattr(poll.view, field), 60))
        for name in SCRIPTS
        for poll in simulated.polls[name][30:]
        for field in ("ttft", "itl", "e2e", "queue")
    }
    for expected in ("<1.0 ms", "<300 ms", ">80 s", "no traffic", "too few"):
        assert any(expected in text for text in texts), (expected, texts)
    whys = {name: {row.why for row in simulated.rows[name]} for name in SCRIPTS}
    assert "edge" in whys["edges"]
    assert {"no traffic", "near"} <= whys["stops"]
    assert "too few" in whys["few"]
    assert whys["idle"] <= {"no traffic", "near"}
