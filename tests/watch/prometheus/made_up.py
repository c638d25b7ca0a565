"""A Prometheus with made-up servers, whose answers a test changes, and a feed on it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
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
EVERY_S = 15.0


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
        self.queries: list[str] = []
        self.refusal: web.Response | None = None
        self.ahead_s = 0.0
        """Seconds that its clock is ahead."""
        self.is_new = False
        """Whether no series is two scrapes old."""
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
            return vector(*(({"__name__": GAUGE, **one}, "1") for one in self.labels))
        if '__name__=~"up"' in query:
            up = () if "== 0" in query else self.labels
            return vector(*((self._up(one), "1") for one in up))
        if query.endswith("s]"):
            return self._raw(query, now)
        values = (str(now - self._age_s(one)) if "timestamp" in query else "2" for one in self.labels)
        return vector(*zip(map(self._up, self.labels), values, strict=True))

    def _age_s(self, labels: Mapping[str, str]) -> float:
        return self.ages.get(labels["job"], self.age_s)

    def _of_up(self, query: str, now: float) -> web.Response:
        if query.startswith("max"):
            return vector(({}, str(now - self.age_s)))
        return vector() if self.is_new else vector(({}, "7"))

    def _raw(self, query: str, now: float) -> web.Response:
        backs = (2 * EVERY_S, EVERY_S, 0.0)
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
        feed.pace.every_s = EVERY_S
        try:
            yield feed, store
        finally:
            await feed.close()
