"""A server of known truth: streams tokens by an absolute schedule and records when it wrote each of them.

Implements the part of vLLM's chat interface that a load generator uses, with its own protocols on uvloop. The
true TTFT of a request is the time after the write of its first token minus the time in `data_received`;
nothing stands between these times and the socket. A token that is shown later or never (see `truth_delivery`)
has the time at which it is made. The times of all reads are taken before any of them is parsed, so that the
last of a burst does not get a late time because of the others.

    POST /truth       set a pace (see `truth_schedule`) and perhaps a delivery; forgets all requests
    GET  /truth       all requests since then, with their times
    GET  /book.txt    a text to cut prompts from

usage: truth_server.py [--core N]; prints its port and serves until its standard input ends.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import resource
import socket
import sys
from array import array
from collections import deque
from collections.abc import Awaitable
from random import Random
from time import perf_counter
from typing import Any, cast

import uvloop
from truth_delivery import Answer, Delivery, delivery_from
from truth_schedule import FixedPace, Stream, Timetable, pace_from

_BACKLOG = 4096
_BOOK_SENTENCES = 4000
_PARSED_AT_ONCE = 4
"""Requests that are parsed between two reads of the sockets, at 20 to 40 µs each."""
_WORDS = (
    *("the river", "a quiet harbour", "every lamp", "the old map", "some distant bell", "her garden"),
    *("remembers", "crosses", "follows", "turns towards", "keeps", "leaves behind"),
)
_FIRST_PACE = FixedPace(first_token_s=0.01, token_gap_s=0.001)


class Connection(asyncio.Protocol):
    """One client's connection; one request at a time."""

    def __init__(self, server: TruthServer) -> None:
        """Serve a connection of `server`."""
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._descriptor = -1
        self._buffer = b""
        self._stream: Stream | None = None
        self._stream_answer: Answer | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport and its socket."""
        self._transport = cast("asyncio.Transport", transport)
        self._descriptor = cast("socket.socket", transport.get_extra_info("socket")).fileno()

    def data_received(self, data: bytes) -> None:
        """Record the time of a read; it is parsed after all others have theirs."""
        self._server.received(self, perf_counter(), data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Record the time at which an unfinished stream was lost."""
        del exc
        if self._stream is not None:
            self._stream.lost_at = perf_counter()
        self._transport = None

    def look(self, at: float, data: bytes) -> None:
        """Parse a read that arrived at `at`, and answer complete requests."""
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self._buffer[:end].split(b"\r\n")
            length = next((int(line[15:]) for line in head if line[:15].lower() == b"content-length:"), 0)
            if len(self._buffer) < end + 4 + length:
                return
            body, self._buffer = self._buffer[end + 4 : end + 4 + length], self._buffer[end + 4 + length :]
            method, path, _ = head[0].decode("latin-1").split(" ", 2)
            self._answer(method, path, body, at)

    def token(self, stream: Stream) -> None:
        """Make a stream's next token and record its time; write the chunk that is due with it, if any."""
        answer = self._stream_answer
        if answer is None:
            return
        number = len(stream.stamps)
        if not number and not self._server.delivery.role_at_once:
            self._write(answer.first_event())
        data, shown = answer.token(number)
        if data:
            self._write(data)
        at = perf_counter()
        stream.stamps.append(at)
        if self._server.delivery.together:
            for one in shown:
                stream.stamps[one] = at
        if number == stream.asked_tokens - 1:
            self._stream = self._stream_answer = None
            self._write(answer.ending())
        elif number == stream.breaks_after and self._transport is not None:
            self._transport.abort()

    def _answer(self, method: str, path: str, body: bytes, at: float) -> None:
        if path == "/v1/chat/completions":
            self._begin(json.loads(body), at)
        elif path == "/v1/models":
            self._reply({"object": "list", "data": [{"id": "truth", "object": "model"}]})
        elif path == "/book.txt":
            self._reply(book(), "text/plain")
        elif path == "/truth" and method == "POST":
            self._server.keep_to(json.loads(body))
            self._reply({})
        elif path == "/truth":
            self._reply({"requests": [told(stream) for stream in self._server.streams]})
        else:
            self._reply({"detail": "Not Found"}, status=b"404 Not Found")

    def _begin(self, asked: dict[str, Any], at: float) -> None:
        prompt_tokens = sum(len(str(one.get("content")).split()) for one in asked["messages"])
        options = asked.get("stream_options") or {}
        if not asked.get("stream"):  # sent by a load generator before its load
            message = {"role": "assistant", "content": "word"}
            choice = {"index": 0, "message": message, "finish_reason": "length"}
            usage = {"prompt_tokens": prompt_tokens, "completion_tokens": 1}
            self._reply({"id": "0", "model": "truth", "choices": [choice], "usage": usage})
            return
        self._stream = Stream(str(asked.get("cache_salt", "")), at, int(asked["max_tokens"]))
        self._stream_answer = Answer(
            self._server.delivery,
            self._stream.asked_tokens,
            prompt_tokens,
            usage=bool(options.get("include_usage")),
            totals=bool(options.get("continuous_usage_stats")),
        )
        if self._server.delivery.role_at_once:
            self._write(self._stream_answer.first_event())
        self._server.begin(self, self._stream)

    def _reply(self, found: object, kind: str = "application/json", status: bytes = b"200 OK") -> None:
        body = found.encode() if isinstance(found, str) else json.dumps(found).encode()
        head = b"HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n"
        self._write(head % (status, kind.encode(), len(body)) + body)

    def _write(self, data: bytes) -> None:
        """Write to the socket immediately; uvloop's transports write at the end of the loop's iteration."""
        transport = self._transport
        if transport is None:
            return
        sent = 0
        if not transport.get_write_buffer_size():
            try:
                sent = os.write(self._descriptor, data)
            except BlockingIOError:
                sent = 0
            except OSError:
                return  # `connection_lost` is called
        if sent < len(data):
            transport.write(data[sent:])


class TruthServer:
    """Makes the tokens of each stream when they are due."""

    def __init__(self) -> None:
        """Start with a fast pace."""
        self.streams: list[Stream] = []
        """All requests since the pace was set."""
        self.delivery = Delivery(ids=True)
        self._loop = asyncio.get_running_loop()
        self._timetable: Timetable = _FIRST_PACE.timetable()
        self._connections: dict[Stream, Connection] = {}
        self._inbox: deque[tuple[Connection, float, bytes]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")

    def keep_to(self, fields: dict[str, object]) -> None:
        """Set the pace and the delivery, and forget all requests."""
        self._timetable = pace_from(fields).timetable()
        self.delivery = delivery_from(fields.get("delivery"))
        self.streams.clear()
        self._connections.clear()
        gc.collect()
        gc.freeze()

    def received(self, connection: Connection, at: float, data: bytes) -> None:
        """Queue a read until the times of all that are ready have been taken."""
        if not self._inbox:
            self._loop.call_soon(self._look)
        self._inbox.append((connection, at, data))

    def begin(self, connection: Connection, stream: Stream) -> None:
        """Register a request and schedule its tokens."""
        every = self.delivery.fail_every
        if every is not None and len(self.streams) % every == every // 2:
            stream.breaks_after = stream.asked_tokens // 3
        self.streams.append(stream)
        self._connections[stream] = connection
        self._timetable.add(stream)
        self._set_timer()

    def _look(self) -> None:
        """Parse some reads; the sockets are read again before the others are parsed."""
        for _ in range(min(len(self._inbox), _PARSED_AT_ONCE)):
            connection, at, data = self._inbox.popleft()
            connection.look(at, data)
        if self._inbox:
            self._loop.call_soon(self._look)

    def _set_timer(self) -> None:
        due_at = self._timetable.due_at()
        if due_at is None or due_at >= self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = due_at
        self._timer = self._loop.call_later(max(0.0, due_at - perf_counter()), self._make_tokens)

    def _make_tokens(self) -> None:
        self._timer, self._timer_at = None, float("inf")
        connections = self._connections
        for stream in self._timetable.take(perf_counter()):
            connections[stream].token(stream)
        self._set_timer()


def told(stream: Stream) -> dict[str, object]:
    """Convert a request to JSON fields."""
    return {
        "key": stream.key,
        "arrived_at": stream.arrived_at,
        "asked_tokens": stream.asked_tokens,
        "stamps": list(stream.stamps),
        "lost_at": stream.lost_at,
    }


def heard(fields: dict[str, Any]) -> Stream:
    """Convert the JSON fields of a request back to it."""
    stamps = array("d", fields["stamps"])
    return Stream(
        fields["key"], fields["arrived_at"], fields["asked_tokens"], len(stamps), stamps, fields["lost_at"]
    )


def book() -> str:
    """Return a text of about 20,000 words."""
    random = Random(7)  # noqa: S311 - text, no secret
    return " ".join(
        " ".join(random.choice(_WORDS) for _ in range(random.randrange(2, 5))) + "."
        for _ in range(_BOOK_SENTENCES)
    )


async def serve(ended: Awaitable[object]) -> None:
    """Serve on a free port, print the port, and stop when `ended` completes."""
    loop = asyncio.get_running_loop()
    truth = TruthServer()
    server = await loop.create_server(lambda: Connection(truth), "127.0.0.1", 0, backlog=_BACKLOG)
    print(server.sockets[0].getsockname()[1], flush=True)
    await ended
    server.close()


async def serve_until_input_ends() -> None:
    """Serve until standard input ends."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    await serve(reader.read())


def main() -> int:
    """Serve; one core is enough, and the client should have another."""
    parser = argparse.ArgumentParser(prog="truth_server.py", description=(__doc__ or "").split("\n\n", 1)[0])
    parser.add_argument("--core", type=int, help="run on this core only")
    options = parser.parse_args()
    if options.core is not None:
        os.sched_setaffinity(0, {options.core})
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    gc.disable()  # a collection in mid-burst would make times late
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve_until_input_ends())
    return 0


if __name__ == "__main__":
    sys.exit(main())
