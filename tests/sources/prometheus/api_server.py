"""A server of the Prometheus HTTP API whose answers a test writes, also faults that no real one has."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from tests import web_server

Answering = Callable[[str], web.Response]
"""From the query to the answer."""


def vector(*series: tuple[Mapping[str, str], str], warnings: Sequence[str] = ()) -> web.Response:
    """Return an answer with one value for each (labels, value)."""
    found = [{"metric": dict(labels), "value": [time.time(), value]} for labels, value in series]
    return _success("vector", found, warnings)


def matrix(*series: tuple[Mapping[str, str], Sequence[tuple[float, str]]]) -> web.Response:
    """Return an answer with samples for each series."""
    return _success("matrix", [{"metric": dict(one), "values": list(values)} for one, values in series], ())


def scalar(value: float) -> web.Response:
    """Return an answer to a query such as `time()`."""
    return _success("scalar", [value, str(value)], ())


def refused(status: int, message: str) -> web.Response:
    """Return an error as Prometheus writes it."""
    body = {"status": "error", "errorType": "execution", "error": message}
    return web.json_response(body, status=status)


def _success(kind: str, result: list[Any], warnings: Sequence[str]) -> web.Response:
    body: dict[str, Any] = {"status": "success", "data": {"resultType": kind, "result": result}}
    if warnings:
        body["warnings"] = list(warnings)
    return web.Response(text=json.dumps(body), content_type="application/json")


@asynccontextmanager
async def api(answering: Answering) -> AsyncIterator[tuple[str, list[Mapping[str, str]]]]:
    """Yield (URL, headers of each request) of a server that answers queries by `answering`."""
    heads: list[Mapping[str, str]] = []

    async def query(request: web.Request) -> web.Response:
        heads.append(dict(request.headers))
        form = await request.post()
        answer = answering(str(form.get("query", "")))
        if answer.body:
            answer.enable_compression()
        return answer

    async with web_server.answering("/api/v1/query", query, "POST") as url:
        yield url, heads
