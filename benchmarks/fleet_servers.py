"""Serve hundreds of servers from one process: each answers /metrics with a full vLLM page that changes.

The page is that of a real vLLM 0.32 under load, with 700 lines. All counters and buckets of a server grow in
proportion, so that quantiles stay those of the page while rates change; gauges follow a slow wave, different
for each server. Eight servers share a model. Some servers can be dead (nothing listens) or mute (they accept
and never answer). An answer costs 0.2 ms, so that one core serves a thousand servers once a second beside the
program that is measured. `/polls` on any server returns the number of pages that all of them have sent.

usage: fleet_servers.py COUNT [DEAD] [MUTE]    prints the ports as JSON, serves until standard input ends
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import cast

PAGE = Path(__file__).resolve().parent.parent / "tests" / "data" / "vllm-0.32" / "t010.prom"
_SAMPLE = re.compile(rb"^([A-Za-z_:][\w:]*)(\{.*\})? (\S+)$")
_GROWS = re.compile(rb"_(?:total|bucket|sum|count)$")
_GROWTH_PER_S = 0.02
"""Mean growth of every counter per second, as a fraction of its first value."""
_RUNNING, _WAITING, _KV = (
    b"vllm:num_requests_running",
    b"vllm:num_requests_waiting",
    b"vllm:kv_cache_usage_perc",
)
_MOST_RUNNING = 16.0
GROUP = 8
"""Servers of one model."""
_MODEL = re.compile(rb'model_name="[^"]*"')
_WAVE_S = (20.0, 90.0)
"""Shortest and longest period of a server's load."""
POLLS = "/polls"
"""Route of every server that returns the number of pages that all of them have sent."""
_HEADERS = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: %d\r\n\r\n"
_MISSING = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"

Values = Callable[[float, float], float]
"""Function from (growth factor, load from 0 to 1.2) to the value of a sample."""


def _value(name: bytes, first: float) -> Values | None:
    """Return the function for the value of a sample; None if it is constant."""
    if name == _RUNNING:
        return lambda _, load: float(round(_MOST_RUNNING * min(1.0, load)))
    if name == _WAITING:
        return lambda _, load: float(round(_MOST_RUNNING * max(0.0, load - 1.0)))
    if name == _KV:
        return lambda _, load: min(1.0, 0.6 * load)
    if not _GROWS.search(name) or not first:
        return None
    if name.endswith(b"_sum"):
        return lambda growth, _: first * growth
    return lambda growth, _: float(math.floor(first * growth))


class Page:
    """A metrics page as constant text with changing values in between."""

    def __init__(self, text: bytes) -> None:
        self.fixed: list[bytes] = []
        self.values: list[Values] = []
        standing = b""
        for line in text.splitlines():
            found = _SAMPLE.match(line)
            value = None if found is None else _value(found[1], float(found[3]))
            if value is None or found is None:
                standing += line + b"\n"
                continue
            self.fixed.append(standing + line[: found.start(3)])
            self.values.append(value)
            standing = b"\n"
        self.end = standing

    def at(self, growth: float, load: float) -> bytes:
        """Return the page at a growth factor and a load from 0 to 1.2."""
        parts = [
            b"%s%.10g" % (fixed, value(growth, load))
            for fixed, value in zip(self.fixed, self.values, strict=True)
        ]
        return b"".join(parts) + self.end


def pages_of(count: int) -> list[Page]:
    """Return the pages of `count` servers; those of a group are the same one."""
    text = PAGE.read_bytes()
    groups = range(0, count, GROUP)
    pages = [Page(_MODEL.sub(b'model_name="model-%03d"' % (first // GROUP), text)) for first in groups]
    return [pages[number // GROUP] for number in range(count)]


class Server(asyncio.Protocol):
    """A connection to one of the servers, which may carry several requests in turn."""

    pages_sent = 0
    """Number of pages that all servers together have sent."""

    def __init__(self, page: Page, number: int, began: float) -> None:
        self.page, self.began = page, began
        shortest, longest = _WAVE_S
        self.period_s = shortest + (number * 7919 % 1000) / 1000 * (longest - shortest)
        self.phase = number * 2.399963
        self.pending = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport, to which answers are written."""
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Answer each complete request."""
        self.pending += data
        while b"\r\n\r\n" in self.pending:
            request, _, self.pending = self.pending.partition(b"\r\n\r\n")
            self.transport.write(self.answer(request))

    def answer(self, request: bytes) -> bytes:
        """Return the answer to a request, headers included."""
        if request.startswith(b"GET " + POLLS.encode()):
            body = b"%d" % Server.pages_sent
            return _HEADERS % len(body) + body
        if not request.startswith(b"GET /metrics"):
            return _MISSING
        Server.pages_sent += 1
        age_s = time.monotonic() - self.began
        load = 0.6 + 0.6 * math.sin(2 * math.pi * age_s / self.period_s + self.phase)
        body = self.page.at(1.0 + _GROWTH_PER_S * age_s, max(0.0, load))
        return _HEADERS % len(body) + body


class Mute(asyncio.Protocol):
    """A connection that is accepted and never answered."""


async def serve(count: int, dead: int, mute: int) -> None:
    """Print the ports of `count` servers, of which the last are dead or mute, and serve them."""
    loop, began = asyncio.get_running_loop(), time.monotonic()
    ports = []
    for number, page in enumerate(pages_of(count)):
        listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        ports.append(int(listener.getsockname()[1]))
        if number >= count - dead:
            listener.close()
        elif number >= count - dead - mute:
            await loop.create_server(Mute, sock=listener)
        else:
            await loop.create_server(partial(Server, page, number, began), sock=listener)
    print(json.dumps(ports), flush=True)
    ended = asyncio.Event()
    loop.add_reader(sys.stdin, ended.set)
    await ended.wait()


def main(words: list[str]) -> None:
    """Parse the numbers of servers on the command line, and serve."""
    numbers = [int(word) for word in words]
    count, dead, mute = (*numbers, 0, 0)[:3]
    try:
        import uvloop
    except ImportError:
        asyncio.run(serve(count, dead, mute))
    else:
        uvloop.run(serve(count, dead, mute))


if __name__ == "__main__":
    main(sys.argv[1:])
