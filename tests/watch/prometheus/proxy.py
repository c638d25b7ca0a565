"""A proxy below a path in front of a server of the API, which keeps what was asked and may change answers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp import web

from tests.web_server import answering

Change = Callable[[str, dict[str, Any]], dict[str, Any] | int]
"""From a query and the body of its answer to another body, or to the HTTP status of a refusal."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that came."""

    path: str
    headers: Mapping[str, str]
    form: Mapping[str, str]


@asynccontextmanager
async def proxied(
    url: str, path: str, change: Change = lambda _, body: body
) -> AsyncIterator[tuple[str, list[Asked]]]:
    """Yield (URL, what was asked) of a proxy that passes what is below `path` on to the server at `url`."""
    asked: list[Asked] = []

    async def forward(request: web.Request) -> web.Response:
        form = {name: str(value) for name, value in (await request.post()).items()}
        asked.append(Asked(request.path, dict(request.headers), form))
        query = str(request.query_string)
        goal = f"{url}/{request.match_info['rest']}{f'?{query}' if query else ''}"
        async with session.request(request.method, goal, data=form or None) as response:
            body = changed = await response.json()
        changed = change(form.get("query", ""), body)
        if isinstance(changed, int):
            return web.json_response({"status": "error", "error": "refused here"}, status=changed)
        return web.Response(text=json.dumps(changed), content_type="application/json")

    async with aiohttp.ClientSession() as session, answering(path + "/{rest:.*}", forward) as base:
        yield f"{base}{path}", asked
