"""HTTP server of the agent: routes, authentication and refusals.

GET /v1/sample?since=&processes=1&interval_s=   JSON of `sparktop.sources.wire.reply`
GET /v1/ranks                                   what NCCL here says of its ranks; asks it, so on request only
GET /metrics                                    the newest sample for Prometheus
GET /healthz                                    liveness, without a token
"""

from __future__ import annotations

import json
import logging
import socket
import ssl
import time
from collections.abc import Callable, Sequence

from aiohttp import web

from sparktop import __version__
from sparktop.agent.access import Guard
from sparktop.agent.ask import Ask, AskError, from_query
from sparktop.agent.connection import Connection, Limits
from sparktop.agent.gate import Gate
from sparktop.agent.rate import Rates
from sparktop.agent.sampler import Sampler
from sparktop.hardware.ras.reader import RasReader
from sparktop.model.failure import Failure
from sparktop.sources.wire.decode import encode_fast
from sparktop.sources.wire.ranks import encode_ranks
from sparktop.sources.wire.reply import make_reply

_log = logging.getLogger(__name__)

_CLOSING_S = 0.5
"""Seconds that responses in progress have to be written at shutdown."""
_LINGER_S = 1.0
"""Seconds that an unwanted request body is read and discarded, so that the client can read the refusal."""
_SCRAPE_INTERVAL_S = 5.0
"""Seconds between samples while only Prometheus requests them; the samples' rates then cover the same
span."""
_SCRAPE_FRESH_S = 1.0
"""A Prometheus page shows a sample that is at most this many seconds old."""
_HEADERS = {
    "Server": "sparktop",  # do not reveal the versions of libraries
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
}


class AgentServer:
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
    ) -> None:
        """Serve the samples of `sampler`; if `token` is set, only to requests with this bearer token.

        `simulated` is reported to viewers; `clock` returns seconds. `ranks` asks NCCL when a request wants it
        (None: a reader of this machine).
        """
        self._ranks = ranks or RasReader()
        self._sampler = sampler
        self._guard = Guard(token)
        self._simulated = simulated
        self._limits = limits or Limits()
        self._clock = clock
        self._rates = Rates(self._limits.requests_per_s, self._limits.request_burst, clock)
        self._server: web.Server | None = None
        self._gate: Gate | None = None

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return 0 if self._gate is None else len(self._gate)

    def start(self, listeners: Sequence[socket.socket], *, tls: ssl.SSLContext | None = None) -> None:
        """Serve on bound sockets, which `close` closes; requires a running event loop."""
        # aiohttp logs errors that any hostile client can cause; they would fill the log.
        silent = logging.getLogger("sparktop.agent.clients")
        silent.setLevel(logging.CRITICAL + 1)
        self._server = web.Server(
            self._handle,
            access_log=None,
            logger=silent,
            keepalive_timeout=self._limits.keep_alive_s,
            max_line_size=self._limits.line_bytes,
            max_field_size=self._limits.line_bytes,
            lingering_time=_LINGER_S,
        )
        self._gate = Gate(self._server, self._limits, tls=tls, clock=self._clock)
        self._gate.open(listeners)

    async def close(self) -> None:
        """Stop listening, wait up to `_CLOSING_S` seconds for responses in progress; close the sampler."""
        if self._gate is not None and self._server is not None:
            await self._gate.close()
            self._server.pre_shutdown()
            await self._server.shutdown(_CLOSING_S)
            self._gate.abort()
        await self._ranks.close()
        await self._sampler.close()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Respond to one request; an unexpected error is logged and ends only this request's connection."""
        connection = self._gate.connection_of(request.protocol) if self._gate is not None else None
        if connection is None:  # the connection was closed while the request came in
            return _text(503, "closing", close=True)
        in_time = connection.begin()
        try:
            return await self._answer(request, connection, in_time=in_time)
        except Exception:  # noqa: BLE001 - the one place that catches errors of every request
            _log.exception("a request could not be answered")
            return _text(500, "an error in sparktop; its log has more", close=True)
        finally:
            connection.end()

    async def _answer(
        self, request: web.BaseRequest, connection: Connection, *, in_time: bool
    ) -> web.StreamResponse:
        admitted = self._guard.admits(request.headers.get("Authorization"))
        # Clients without the token have a budget of their own, so that guessing it locks out no viewer.
        in_time = self._rates.take((connection.peer, admitted)) and in_time
        path = request.rel_url.raw_path
        if (refused := _refused(request, in_time=in_time)) is not None:
            return refused
        if path == "/healthz":
            return _json(json.dumps({"ok": True, "sparktop": __version__}).encode())
        if not admitted:
            return _text(401, "unauthorized", close=True, headers={"WWW-Authenticate": "Bearer"})
        connection.proven = True
        return await self._admitted(request, path)

    async def _admitted(self, request: web.BaseRequest, path: str) -> web.StreamResponse:
        """Respond to a request for `path` that is not refused."""
        if path == "/v1/sample":
            return await self._sample(request)
        if path == "/v1/ranks" and request.method == "GET":
            return _json(encode_ranks(await self._ranks.ask()))
        if path == "/metrics":
            return await self._metrics(request)
        return _text(404, "not found", close=True)

    async def _sample(self, request: web.BaseRequest) -> web.Response:
        try:
            ask = from_query(request.query)
        except AskError as error:
            return _text(400, str(error), close=True)
        found = await self._sampler.ask(ask)
        if isinstance(found, Failure):
            return _text(503, found.message)
        reply = make_reply(
            self._sampler.identity,
            found,
            self._sampler.now(),
            interval_s=self._sampler.interval_s,
            simulated=self._simulated,
        )
        return _json(encode_fast(reply))

    async def _metrics(self, request: web.BaseRequest) -> web.Response:
        from sparktop.agent.exposition import page  # late: many agents are never scraped

        found = await self._sampler.ask(Ask(interval_s=_SCRAPE_INTERVAL_S), fresh_s=_SCRAPE_FRESH_S)
        if isinstance(found, Failure):
            return _text(503, found.message)
        accept = request.headers.get("Accept")
        newest = found[-1] if found else None
        body, kind = page(self._sampler.identity, newest, accept=accept, simulated=self._simulated)
        return web.Response(body=body, headers={**_HEADERS, "Content-Type": kind})


def _refused(request: web.BaseRequest, *, in_time: bool) -> web.Response | None:
    """Return a refusal if the request is too frequent, not a GET or HEAD, or has a body; else None.

    `in_time` is false if the client exceeds its request rate.
    """
    if not in_time:
        return _text(429, "too many requests", close=True, headers={"Retry-After": "1"})
    if request.method not in {"GET", "HEAD"}:
        return _text(405, "read only: GET or HEAD", close=True, headers={"Allow": "GET, HEAD"})
    if request.body_exists:
        return _text(413, "no body is wanted", close=True)
    return None


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, headers={**_HEADERS, "Content-Type": "application/json"})


def _text(
    status: int, line: str, *, close: bool = False, headers: dict[str, str] | None = None
) -> web.Response:
    """Return a one-line text response; with `close`, the connection is closed after it."""
    kind = {"Content-Type": "text/plain; charset=utf-8"}
    body = f"{line}\n".encode()
    response = web.Response(body=body, status=status, headers={**_HEADERS, **kind, **(headers or {})})
    if close:
        response.force_close()
    return response
