"""A Prometheus with made-up servers, whose answers a test changes, and a feed on it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from email.utils import formatdate

from aiohttp import web

from sparktop.engines.tables import RUNNING
from sparktop.model.targets import PrometheusTarget, Watch
from sparktop.store import Store
from sparktop.watch.prometheus import PrometheusFeed
from tests.sources.prometheus.api_server import Answering, api, matrix, scalar, vector

GAUGE = next(iter(RUNNING))
TOKENS = "vllm:generation_tokens_total"


class Scraped:
    """A Prometheus with made-up servers, each scraped every 15 s."""

    def __init__(self, count: int, *, age_s: float = 3.0, per_group: int = 8) -> None:
        self.labels = [
            {"job": "vllm", "instance": f"h:{number}", "model_name": f"m{number // per_group}"}
            for number in range(count)
        ]
        self.age_s = age_s
        self.ages: dict[str, float] = {}
        """The age of the newest samples by job, where it is not `age_s`."""
        self.dead: set[str] = set()
        self.unseen: set[str] = set()
        """Instances whose gauges have no sample in the past five minutes, only in the past hour."""
        self.never: set[str] = set()
        """Instances that were never scraped."""
        self.queries: list[str] = []
        self.refusal: web.Response | None = None
        self.warnings: Sequence[str] = ()
        self.ahead_s = 0.0
        """Seconds that its clock is ahead."""
        self.is_new = False
        """Whether no series is two scrapes old."""
        self.samples, self.every_s = 3, 15.0
        """Samples of each server, and the seconds between two of them."""
        self.up_age_s: float | None = None
        """The age of the newest sample of `up`; None for that of all series."""
        self.behind: Sequence[str] = ()
        """URLs of the servers behind a router."""

    def __call__(self, query: str) -> web.Response:  # noqa: PLR0911 - an answer for each kind of query
        """Answer a query."""
        now = time.time() + self.ahead_s
        self.queries.append(query)
        if query == "time()":
            answer = scalar(now)
            answer.headers["Date"] = formatdate(now, usegmt=True)
            return answer
        if self.refusal is not None:
            refusal, self.refusal = self.refusal, None
            return refusal
        if 'server!=""' in query:
            return vector(
                *(({"job": "router", "instance": "r:80", "server": url}, "1") for url in self.behind)
            )
        if "node_uname_info" in query or "DCGM" in query:
            return vector()
        if "prometheus_replica" in query:
            return vector()
        if query.startswith(("count(", "max(timestamp(")):
            return self._of_up(query, now)
        if query.startswith("count by"):
            hidden = self.never if "last_over_time" in query else self.never | self.unseen
            return vector(*(({"__name__": GAUGE, **one}, "1") for one in self._without(hidden)))
        if '__name__=~"up"' in query:
            down = "== 0" in query
            return vector(
                *(
                    (self._up(one), "0" if one["instance"] in self.dead else "1")
                    for one in self.labels
                    if not down or one["instance"] in self.dead
                )
            )
        if query.endswith("s]"):
            return self._raw(query, now)
        live = self._without(self.never | self.unseen)
        values = (str(now - self._age_s(one)) if "timestamp" in query else "2" for one in live)
        return vector(*zip(map(self._up, live), values, strict=True), warnings=self.warnings)

    def _age_s(self, labels: Mapping[str, str]) -> float:
        return self.ages.get(labels["job"], self.age_s)

    def _of_up(self, query: str, now: float) -> web.Response:
        if query.startswith("max"):
            return vector(({}, str(now - (self.age_s if self.up_age_s is None else self.up_age_s))))
        return vector() if self.is_new else vector(({}, "7"))

    def _without(self, instances: Collection[str]) -> list[dict[str, str]]:
        return [one for one in self.labels if one["instance"] not in instances]

    def _raw(self, query: str, now: float) -> web.Response:
        backs = [self.every_s * back for back in reversed(range(self.samples))]
        asked = [
            (one, [now - self._age_s(one) - back for back in backs])
            for one in self.labels
            if one["instance"].replace(":", ":") in query
        ]
        return matrix(
            *(({"__name__": GAUGE, **one}, [(at, "3") for at in times]) for one, times in asked),
            *(({"__name__": TOKENS, **one}, [(at, f"{at:.0f}") for at in times]) for one, times in asked),
        )

    def _up(self, labels: Mapping[str, str]) -> dict[str, str]:
        return {"job": labels["job"], "instance": labels["instance"]}


@asynccontextmanager
async def watched(
    scraped: Answering, group_by: tuple[str, ...] = ()
) -> AsyncIterator[tuple[PrometheusFeed, Store]]:
    """Yield a feed on this Prometheus, and the store that it feeds."""
    async with api(scraped) as (url, _):
        target = PrometheusTarget("main", url, group_by=group_by)
        store = Store(Watch(prometheus=(target,), source="test"))
        feed = PrometheusFeed(target, store, store.accept)
        feed.pace.every_s = 15.0
        try:
            yield feed, store
        finally:
            await feed.close()
