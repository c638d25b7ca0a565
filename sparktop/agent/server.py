"""HTTP server of the agent: its routes.

GET /v1/sample?since=&processes=1&interval_s=   JSON of `sparktop.sources.wire.reply`
GET /v1/ranks                                   what NCCL here says of its ranks; asks it, so on request only,
                                                and without a token only with the header X-Sparktop-Ranks
GET /metrics                                    the newest sample for Prometheus
GET /healthz                                    liveness, without a token
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from aiohttp import web

from sparktop.agent.ask import Ask, AskError, from_query
from sparktop.agent.connection import Limits
from sparktop.agent.sampler import Sampler
from sparktop.agent.web_server import WebServer, json_bytes, page, text
from sparktop.hardware.ras import RasReader
from sparktop.model.failure import Failure
from sparktop.sources.wire.decode import encode_fast
from sparktop.sources.wire.ranks import ASKS_RANKS, encode_ranks
from sparktop.sources.wire.reply import make_reply

_SCRAPE_INTERVAL_S = 5.0
"""Seconds between samples while only Prometheus requests them; the samples' rates then cover the same
span."""
_SCRAPE_FRESH_S = 1.0
"""A Prometheus page shows a sample that is at most this many seconds old."""


class AgentServer(WebServer):
    """Serves one machine's samples over HTTP."""

    def __init__(
        self,
        sampler: Sampler,
        *,
        token: str | None = None,
        simulated: bool = False,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.monotonic,
        ranks: RasReader | None = None,
        names: Collection[str] | None = None,
    ) -> None:
        """Serve the samples of `sampler`; if `token` is set, only to requests with this bearer token.

        `simulated` is reported to viewers; `clock` returns seconds. `ranks` asks NCCL when a request wants it
        (None: a reader of this machine). `names` is as for `WebServer`.
        """
        super().__init__(token=token, limits=limits, clock=clock, names=names)
        self._ranks = ranks or RasReader()
        self._sampler = sampler
        self._simulated = simulated

    async def close(self) -> None:
        """Stop listening, wait a moment for responses in progress, and close the sampler."""
        await super().close()
        await self._ranks.close()
        await self._sampler.close()

    async def respond(self, request: web.BaseRequest, path: str) -> web.StreamResponse:
        """Respond to a request for the route `path`; an unknown one gets 404."""
        if path == "/v1/sample":
            return await self._sample(request)
        if path == "/v1/ranks" and request.method == "GET":
            return await self._answer_ranks(request)
        if path == "/metrics":
            return await self._metrics(request)
        return text(404, "not found", close=True)

    async def _answer_ranks(self, request: web.BaseRequest) -> web.StreamResponse:
        """Ask NCCL, which may harm a job: only for a request that no page of another server can make.

        Neither of the headers can be sent by an image, a form or a script of another page without permission.
        """
        if not self._guard.wants_token and ASKS_RANKS not in request.headers:
            words = f"asking NCCL needs the header {ASKS_RANKS}, which a newer viewer sends: update it"
            return text(403, words, close=True)
        return json_bytes(encode_ranks(await self._ranks.ask()))

    async def _sample(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            ask = from_query(request.query)
        except AskError as error:
            return text(400, str(error), close=True)
        found = await self._sampler.ask(ask)
        if isinstance(found, Failure):
            return text(503, found.message)
        reply = make_reply(
            self._sampler.identity,
            found,
            self._sampler.now(),
            interval_s=self._sampler.interval_s,
            simulated=self._simulated,
        )
        return json_bytes(encode_fast(reply))

    async def _metrics(self, request: web.BaseRequest) -> web.StreamResponse:
        from sparktop.agent.exposition import page as node_page  # late: many agents are never scraped

        found = await self._sampler.ask(Ask(interval_s=_SCRAPE_INTERVAL_S), fresh_s=_SCRAPE_FRESH_S)
        if isinstance(found, Failure):
            return text(503, found.message)
        accept = request.headers.get("Accept")
        newest = found[-1] if found else None
        body, kind = node_page(self._sampler.identity, newest, accept=accept, simulated=self._simulated)
        return page(body, kind)
