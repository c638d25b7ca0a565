"""HTTP servers that only answer GET and HEAD: the base of all commands that serve, and that of the agent.

`AgentServer` and the servers of `sparktop export` and `sparktop serve` add routes to `WebServer`. The last
one overrides who is admitted. Routes of the agent:

    GET /v1/sample?since=&processes=1&interval_s=   JSON of `sparktop.sources.replies`
    GET /v1/ranks                                   what NCCL here says of its ranks: it is asked only on
                                                    request, without a token only with the header
                                                    X-Sparktop-Ranks
    GET /metrics                                    the newest sample for Prometheus
    GET /healthz                                    liveness, without a token
"""

from __future__ import annotations

import gc
import json
import logging
import socket
import ssl
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext

from aiohttp import web

from sparktop import __version__
from sparktop.agent.access import Guard, Service, is_foreign, is_own
from sparktop.agent.gate import ClientConnection, Gate, Limits, Rates
from sparktop.agent.reader import Ask, AskError, Sampler, from_query
from sparktop.hardware.ras import RasReader
from sparktop.model.failure import Failure
from sparktop.sources.local import LocalSource
from sparktop.sources.replies import ASKS_RANKS, encode_ranks
from sparktop.stopping import stopped_by_signals

_log = logging.getLogger(__name__)

_CLOSING_S = 0.5
"""Seconds that responses in progress have to be written at shutdown."""
_LINGER_S = 1.0
"""Seconds that an unwanted request body is read and discarded, so that the client can read the refusal."""
_HEADERS = {
    "Server": "sparktop",  # do not reveal the versions of libraries
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
}


class WebServer:
    """Serves the routes of a subclass over HTTP, and /healthz without a token."""

    command = "agent"
    """The command of sparktop that runs the server."""
    forms: Collection[str] = ()
    """Paths that also take a POST request with a body: forms, which change nothing but cookies."""

    def __init__(
        self,
        *,
        token: str | None = None,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.monotonic,
        names: Collection[str] | None = None,
    ) -> None:
        """Prepare to serve; if `token` is set, only requests with this bearer token.

        `clock` returns seconds. `names` are those of the server, see `own_names`: a request under another
        name is refused, so that a web page whose name points to this machine gets no answer. None allows any.
        """
        self._guard = Guard(token)
        self._names = names
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
        """Stop listening, and wait up to `_CLOSING_S` seconds for responses in progress."""
        if self._gate is not None and self._server is not None:
            await self._gate.close()
            self._server.pre_shutdown()
            await self._server.shutdown(_CLOSING_S)
            self._gate.abort()

    async def run(
        self,
        service: Service,
        work: AbstractAsyncContextManager[object] | None = None,
        *,
        ready: Callable[[], None],
    ) -> int:
        """Serve at `service`, and within the context `work`, until a signal arrives; return the exit code.

        `ready` is called once connections are accepted.
        """
        with stopped_by_signals() as stop:
            self.start(service.listeners, tls=service.tls)
            ready()
            try:
                async with work or nullcontext():
                    # What the start made lives until the end: garbage collection need not visit it.
                    gc.collect()
                    gc.freeze()
                    return await stop
            finally:
                await self.close()

    async def respond(self, request: web.BaseRequest, path: str) -> web.StreamResponse:
        """Respond to an authenticated GET or HEAD request; `path` is its URL's path, without the query."""
        raise NotImplementedError

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Respond to one request; an unexpected error is logged and ends only this request's connection."""
        connection = self._gate.connection_of(request.protocol) if self._gate is not None else None
        if connection is None:  # the connection was closed while the request came in
            return text(503, "closing", close=True)
        connection.begin_request()
        try:
            return await self._check_and_respond(request, connection)
        except Exception:  # noqa: BLE001 - the one place that catches errors of every request
            _log.exception("a request could not be answered")
            return text(500, "an error in sparktop; its log has more", close=True)
        finally:
            connection.end_request()

    async def _check_and_respond(
        self, request: web.BaseRequest, connection: ClientConnection
    ) -> web.StreamResponse:
        admitted = self.admits(request)
        # Clients without the token have a budget of their own, so that guessing it locks out no viewer.
        in_time = self._rates.take((connection.peer, admitted))
        path = request.rel_url.raw_path
        if (refused := _refusal(request, in_time=in_time, is_form=path in self.forms)) is not None:
            return refused
        if self._names is not None and not is_own(request.headers.get("Host"), self._names):
            words = f"this server has another name: sparktop {self.command} --name HOST adds one"
            return text(421, words, close=True)
        if is_foreign(request.headers):
            return text(403, "a page of another server may not ask", close=True)
        if path == "/healthz":
            return json_bytes(json.dumps({"ok": True, "sparktop": __version__}).encode())
        if not admitted:
            return await self.respond_to_stranger(request, path)
        connection.is_authenticated = True
        return await self.respond(request, path)

    def admits(self, request: web.BaseRequest) -> bool:
        """Return whether a request has the token, or none is required."""
        return self._guard.admits(request.headers.get("Authorization"))

    async def respond_to_stranger(self, request: web.BaseRequest, path: str) -> web.StreamResponse:  # noqa: ARG002 - for subclasses
        """Respond to a request without the token; `path` is its URL's path, without the query."""
        return text(401, "unauthorized", close=True, headers={"WWW-Authenticate": "Bearer"})


def _refusal(request: web.BaseRequest, *, in_time: bool, is_form: bool = False) -> web.Response | None:
    """Return a refusal if the request is too frequent, not a GET or HEAD, or has a body; else None.

    `in_time` is false if the client exceeds its request rate. A form may also be sent with POST and a body.
    """
    if not in_time:
        return text(429, "too many requests", close=True, headers={"Retry-After": "1"})
    if is_form and request.method == "POST":
        return None
    if request.method not in {"GET", "HEAD"}:
        return text(405, "read only: GET or HEAD", close=True, headers={"Allow": "GET, HEAD"})
    if request.body_exists:
        return text(413, "no body is wanted", close=True)
    return None


def page(body: bytes, content_type: str) -> web.Response:
    """Return a response with the content `body`."""
    return web.Response(body=body, headers={**_HEADERS, "Content-Type": content_type})


def json_bytes(body: bytes) -> web.Response:
    """Return a response with the JSON text `body`."""
    return page(body, "application/json")


def text(
    status: int, line: str, *, close: bool = False, headers: dict[str, str] | None = None
) -> web.Response:
    """Return a one-line text response; with `close`, the connection is closed after it."""
    kind = {"Content-Type": "text/plain; charset=utf-8"}
    body = f"{line}\n".encode()
    response = web.Response(body=body, status=status, headers={**_HEADERS, **kind, **(headers or {})})
    if close:
        response.force_close()
    return response


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
            return await self._metrics()
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
        answer = await self._sampler.ask(ask)
        if isinstance(answer, Failure):
            return text(503, answer.message)
        return json_bytes(self._sampler.encode_reply(answer, simulated=self._simulated))

    async def _metrics(self) -> web.StreamResponse:
        from sparktop.agent.exposition import CONTENT_TYPE  # late: many agents are never scraped
        from sparktop.agent.exposition import page as node_page

        answer = await self._sampler.ask(Ask(interval_s=_SCRAPE_INTERVAL_S), fresh_s=_SCRAPE_FRESH_S)
        if isinstance(answer, Failure):
            return text(503, answer.message)
        newest = answer[-1] if answer else None
        return page(node_page(self._sampler.identity, newest, simulated=self._simulated), CONTENT_TYPE)


async def serve(service: Service, names: Collection[str] | None, *, ready: Callable[[], None]) -> int:
    """Serve this machine's samples until a signal arrives; return the exit code.

    `names` are those of the agent, as for `WebServer`. `ready` is called once it accepts connections.
    """
    sampler = Sampler(LocalSource("agent"))
    return await AgentServer(sampler, token=service.token, names=names).run(service, ready=ready)
