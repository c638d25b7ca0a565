"""A simulated LiteLLM router in front of the simulated servers: routes, headers and behaviour over HTTP."""

from __future__ import annotations

import hmac
import json
import random
import time
from collections.abc import AsyncIterator, Mapping
from itertools import count

import aiohttp
from aiohttp import web
from msgspec import Struct

from sparktop.config.watch import DEMO_KEY
from sparktop.demo.engine import MOST_BODY_BYTES, set_server_header
from sparktop.demo.load import MARK, MARKED, LoadPause
from sparktop.model.text import clean
from sparktop.simulation.routers import BROKEN_AFTER, COOLDOWN_S, Router
from sparktop.sources.router import ANSWERS, FAILED_REQUESTS, FAILURES

VERSION = "1.106.2+simulated"
_RETRIES = 2
"""How often a request is sent again if its backend cannot be reached."""
_CONNECT_S = 5.0
"""Seconds to connect to a backend."""
_OK, _REFUSED, _UNAUTHORIZED, _INTERNAL = 200, 429, 401, 500
AGAINST = frozenset({401, 404, 408, 429})
"""Status codes below 500 that LiteLLM counts as a failure of the backend."""
_PASSED_HEADERS = ("Content-Type", "Cache-Control")
_REPEATING = (
    "litellm.InternalServerError: The model is repeating the same chunk. "
    "This is probably an infinite loop (simulated)."
)


class _Attempt(Struct):
    """One attempt to serve a request.

    It has the backend's index, and the number of attempts for this request that failed before.
    """

    backend: int
    retries: int = 0
    overhead_ms: float = 0.0
    """Milliseconds from the arrival of the request until the proxy forwarded it."""
    settled: bool = False
    """Whether the attempt's result has been reported to the routing strategy."""


class _NoConnectionError(Exception):
    """No connection to a backend could be made."""


class Proxy:
    """HTTP server that forwards each completion request to the backend that a routing strategy chooses."""

    def __init__(
        self,
        upstreams: Mapping[str, str],
        router: Router,
        *,
        model: str,
        broken_share: float = 0.0,
        seed: int | str = 0,
        pause: LoadPause | None = None,
    ) -> None:
        """Forward requests to `upstreams`; `router` chooses an index in `upstreams` for each request.

        `upstreams` has the URLs of the servers by id (LiteLLM calls them deployments), without a trailing
        slash and without /v1. `broken_share` of the requests are broken off after `BROKEN_AFTER` tokens;
        `pause` learns of requests that are not the demo's own load.
        """
        self._pause = pause or LoadPause()
        self._upstreams = tuple(upstreams.items())
        self._router = router
        self._model = model
        self._broken_share = broken_share
        # Chances of failure need no cryptographic randomness.
        self._random = random.Random(seed)  # noqa: S311
        self._calls = count(1)
        self._failures = [0] * len(self._upstreams)
        self._answers = [0] * len(self._upstreams)
        self._refusals = 0
        self._session: aiohttp.ClientSession | None = None

    def application(self) -> web.Application:
        """Return the aiohttp application with all routes."""
        app = web.Application(client_max_size=MOST_BODY_BYTES)
        app.cleanup_ctx.append(self._sessions)
        app.on_response_prepare.append(set_server_header)
        for path in ("/v1/chat/completions", "/v1/completions"):
            app.router.add_post(path, self._send_with_retries)
        app.router.add_get("/v1/models", self._respond_models)
        app.router.add_get("/health/liveliness", _respond_liveliness)
        app.router.add_get("/health/readiness", _respond_readiness)
        app.router.add_get("/model/info", self._respond_model_info)
        app.router.add_get("/router/settings", self._respond_settings)
        app.router.add_get("/metrics/", self._respond_metrics)
        return app

    async def _sessions(self, _: web.Application) -> AsyncIterator[None]:
        """Keep an HTTP client for requests to the backends open while the application runs."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S)
        async with aiohttp.ClientSession(
            timeout=timeout, connector=aiohttp.TCPConnector(limit=0), auto_decompress=False
        ) as session:
            self._session = session
            yield
        self._session = None

    async def _send_with_retries(self, request: web.Request) -> web.StreamResponse:
        came_s, retries = time.monotonic(), 0
        with self._pause.during(request.headers):
            body = await request.read()
            while True:
                backend = self._router.choose(time.monotonic())
                if backend is None:
                    return self._respond_all_cooling()
                attempt = _Attempt(backend, retries, 1000 * (time.monotonic() - came_s))
                self._router.record_start(backend, time.monotonic())
                try:
                    return await self._send_once(request, body, attempt)
                except _NoConnectionError as error:
                    self._report_result(attempt, ok=False, status=_INTERNAL)
                    if retries == _RETRIES:
                        message = f"litellm.InternalServerError: {error}"
                        return _error_response(_INTERNAL, message, self._routing_headers(attempt))
                    retries += 1
                finally:
                    # Any other end, such as a disconnected client, says nothing about the backend.
                    self._report_result(attempt, ok=None)

    async def _send_once(self, request: web.Request, body: bytes, attempt: _Attempt) -> web.StreamResponse:
        limit = BROKEN_AFTER if self._random.random() < self._broken_share else None
        url = self._upstreams[attempt.backend][1] + request.path
        assert self._session is not None  # noqa: S101 - the application runs
        try:
            kind = {"Content-Type": request.headers.get("Content-Type", "")}
            answer = await self._session.post(
                url, data=body, headers=kind | (MARKED if MARK in request.headers else {})
            )
        except (aiohttp.ClientConnectionError, OSError) as error:
            raise _NoConnectionError(f"Connection error: {clean(error, 120)}") from error
        async with answer:
            if answer.status != _OK:
                return await self._pass_refusal_on(answer, attempt)
            return await self._pass_on(request, answer, attempt, limit)

    async def _pass_refusal_on(self, answer: aiohttp.ClientResponse, attempt: _Attempt) -> web.Response:
        # A request that is faulty itself counts neither for nor against its backend.
        its_own = answer.status < _INTERNAL and answer.status not in AGAINST
        self._report_result(attempt, ok=None if its_own else False, status=answer.status)
        try:
            words = json.loads(await answer.read())["error"]["message"]
        except (aiohttp.ClientError, ValueError, KeyError, TypeError):
            words = answer.reason
        message = f"litellm.BadRequestError: Hosted_vllmException - {clean(words, 400)}"
        return _error_response(answer.status, message, self._routing_headers(attempt))

    async def _pass_on(
        self, request: web.Request, answer: aiohttp.ClientResponse, attempt: _Attempt, limit: int | None
    ) -> web.StreamResponse:
        """Forward a backend's response to the client as it arrives.

        After `limit` SSE events (None: no limit), end the response with an error, as LiteLLM does when it
        suspects that the model repeats itself.
        """
        headers = {name: answer.headers[name] for name in _PASSED_HEADERS if name in answer.headers}
        response = web.StreamResponse(headers=headers | self._routing_headers(attempt))
        events = 0
        try:
            await response.prepare(request)
            async for part in answer.content.iter_any():
                events += part.count(b"data: ")
                if limit is not None and events > limit:
                    self._report_result(attempt, ok=False, status=_INTERNAL)
                    content = {"message": _REPEATING, "type": None, "param": None, "code": str(_INTERNAL)}
                    await response.write(b"data: " + json.dumps({"error": content}).encode() + b"\n\n")
                    await response.write_eof()
                    return response
                await response.write(part)
        except aiohttp.ClientPayloadError:
            # The backend died in the middle of its answer, so this answer breaks off too.
            self._report_result(attempt, ok=False, status=_INTERNAL)
            if request.transport is not None:
                request.transport.abort()
            return response
        self._report_result(attempt, ok=True)
        await response.write_eof()
        return response

    def _report_result(self, attempt: _Attempt, *, ok: bool | None, status: int | None = None) -> None:
        """Report the result of an attempt to the routing strategy, and count a failure.

        If the attempt's result was already reported, do nothing. `ok` is None if the result says nothing
        about the backend; `status` is the HTTP status of a failure.
        """
        if not attempt.settled:
            attempt.settled = True
            self._failures[attempt.backend] += ok is False
            self._answers[attempt.backend] += ok is True
            self._router.record_end(attempt.backend, time.monotonic(), ok=ok, status=status)

    def _routing_headers(self, attempt: _Attempt) -> dict[str, str]:
        """Return LiteLLM's response headers, which name the backend that served the request."""
        server_id, url = self._upstreams[attempt.backend]
        return {
            "x-litellm-call-id": f"simulated-{next(self._calls)}",
            "x-litellm-model-id": server_id,
            "x-litellm-model-api-base": f"{url}/v1",
            "x-litellm-model-group": self._model,
            "x-litellm-version": VERSION,
            "x-litellm-overhead-duration-ms": f"{attempt.overhead_ms:.3f}",
            "x-litellm-attempted-retries": str(attempt.retries),
            "x-litellm-attempted-fallbacks": "0",
        }

    async def _respond_metrics(self, _: web.Request) -> web.Response:
        """Return a metrics page like LiteLLM's: answers and failures by backend, and refused requests."""
        counts = ((FAILURES, self._failures), (ANSWERS, self._answers))
        lines = [
            f'{name}{{model_id="{server_id}"}} {count}'
            for name, column in counts
            for (server_id, _), count in zip(self._upstreams, column, strict=True)
        ]
        refused = f'{FAILED_REQUESTS}{{exception_class="RouterRateLimitError"}} {self._refusals}'
        return web.Response(text="\n".join((*lines, refused, "")))

    def _respond_all_cooling(self) -> web.Response:
        self._refusals += 1
        indices = self._router.cooling_backends(time.monotonic())
        cooling = [server_id for index, (server_id, _) in enumerate(self._upstreams) if index in indices]
        message = (
            "No deployments available for selected model, Try again in 5 seconds. "
            f"Passed model={self._model}. pre-call-checks=False, cooldown_list={cooling}"
        )
        return _error_response(_REFUSED, message, {"x-litellm-version": VERSION})

    async def _respond_models(self, _: web.Request) -> web.Response:
        model = {"id": self._model, "object": "model", "created": 1_677_610_602, "owned_by": "openai"}
        return web.json_response({"object": "list", "data": [model]})

    async def _respond_model_info(self, request: web.Request) -> web.Response:
        _check_key(request)
        content = [
            {
                "model_name": self._model,
                "litellm_params": {
                    "api_base": f"{url}/v1",
                    "model": f"hosted_vllm/{self._model}",
                },
                "model_info": {"id": server_id, "db_model": False},
            }
            for server_id, url in self._upstreams
        ]
        return web.json_response({"data": content})

    async def _respond_settings(self, request: web.Request) -> web.Response:
        _check_key(request)
        values = {
            "routing_strategy": self._router.strategy,
            "cooldown_time": COOLDOWN_S,
            "disable_cooldowns": False,
            "num_retries": _RETRIES,
        }
        return web.json_response({"fields": [], "current_values": values, "simulated": True})


async def _respond_liveliness(_: web.Request) -> web.Response:
    return web.json_response("I'm alive!")


async def _respond_readiness(_: web.Request) -> web.Response:
    content = {"status": "healthy", "db": "Not connected", "litellm_version": VERSION, "simulated": True}
    return web.json_response(content)


def _check_key(request: web.Request) -> None:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    is_same = hmac.compare_digest(token.strip().encode("utf-8", "replace"), DEMO_KEY.encode())
    if scheme.lower() == "bearer" and is_same:
        return
    content = {
        "message": "Authentication Error, No api key passed in.",
        "type": "auth_error",
        "param": "None",
    }
    body = json.dumps({"error": content | {"code": str(_UNAUTHORIZED)}})
    raise web.HTTPUnauthorized(text=body, content_type="application/json")


def _error_response(status: int, message: str, headers: dict[str, str]) -> web.Response:
    content = {"message": message, "type": None, "param": None, "code": str(status)}
    return web.json_response({"error": content}, status=status, headers=headers)
