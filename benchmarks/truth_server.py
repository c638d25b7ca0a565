"""A server of known truth: streams tokens by an absolute schedule and records when it wrote each of them.

Implements the part of vLLM's chat interface that a load generator uses, with its own protocols on uvloop. The
true TTFT of a request is the time after the write of its first token minus the time in `data_received`;
nothing stands between these times and the socket. A token that is shown later or never (see `Delivery`)
has the time at which it is made. The times of all reads are taken before any of them is parsed, so that the
last of a burst does not get a late time because of the others.

    POST /truth       set a pace (see `FixedPace` and `Batching`); forgets all requests
    GET  /truth       all requests since then, with their times
    GET  /book.txt    a text to cut prompts from

usage: truth_server.py [--core N]; prints its port and serves until its standard input ends.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import heapq
import json
import os
import resource
import socket
import sys
from collections import deque
from collections.abc import Awaitable
from random import Random
from time import perf_counter
from typing import Any, cast

import msgspec
import uvloop
from msgspec import Struct


class Stream(Struct, eq=False):
    """One request and its answer on the server; all times are of the machine's monotonic clock."""

    key: str
    """Identifier of the request: its `cache_salt`, "" without one."""
    arrived_at: float
    """Time of the read that completed its body, taken before the read was parsed."""
    asked_tokens: int
    made_tokens: int = 0
    """Tokens that the timetable has made due."""
    stamps: list[float] = []
    """Time of each token: after its write, or when it was made if it is written later or never."""
    lost_at: float | None = None
    """Time at which its connection was closed; None if it had ended by then."""


class FixedPace(Struct, frozen=True, tag="fixed"):
    """Independent requests: first token `first_token_s` after the arrival, then one per `token_gap_s`."""

    first_token_s: float
    token_gap_s: float

    def timetable(self) -> Timetable:
        """Return an empty timetable."""
        return _FixedTimetable(self)


class Batching(Struct, frozen=True, tag="batching"):
    """An engine with continuous batching: each step makes one token per running request.

    A step that admits a request also computes its prompt and takes `prefill_s` longer: while some requests
    still wait for their first token, the others are slower. The rate is `slots / step_s` only while all of
    them run.
    """

    slots: int
    step_s: float
    prefill_s: float

    @property
    def pure_decode_tps(self) -> float:
        """Tokens per second while every slot decodes and nothing else happens."""
        return self.slots / self.step_s

    def timetable(self) -> Timetable:
        """Return an empty timetable."""
        return _BatchTimetable(self)


class _FixedTimetable:
    def __init__(self, pace: FixedPace) -> None:
        self._pace = pace
        self._heap: list[tuple[float, int, Stream]] = []
        self._added = 0

    def add(self, stream: Stream) -> None:
        self._added += 1
        heapq.heappush(self._heap, (stream.arrived_at + self._pace.first_token_s, self._added, stream))

    def due_at(self) -> float | None:
        return self._heap[0][0] if self._heap else None

    def take(self, now: float) -> list[Stream]:
        heap, pace = self._heap, self._pace
        found: list[Stream] = []
        while heap and heap[0][0] <= now:
            _, number, stream = heap[0]
            if stream.lost_at is None:
                found.append(stream)
                stream.made_tokens += 1
            if stream.lost_at is None and stream.made_tokens < stream.asked_tokens:
                due = stream.arrived_at + pace.first_token_s + stream.made_tokens * pace.token_gap_s
                heapq.heapreplace(heap, (due, number, stream))
            else:
                heapq.heappop(heap)
        return found


class _BatchTimetable:
    def __init__(self, pace: Batching) -> None:
        self._pace = pace
        self._waiting: deque[Stream] = deque()
        self._running: list[Stream] = []
        self._step_ends_at: float | None = None

    def add(self, stream: Stream) -> None:
        self._waiting.append(stream)
        if self._step_ends_at is None:
            self._begin_step(stream.arrived_at)

    def due_at(self) -> float | None:
        return self._step_ends_at

    def take(self, now: float) -> list[Stream]:
        found: list[Stream] = []
        while (at := self._step_ends_at) is not None and at <= now:
            for stream in self._running:
                if stream.lost_at is None:
                    found.append(stream)
                    stream.made_tokens += 1
            self._begin_step(at)
        return found

    def _begin_step(self, at: float) -> None:
        self._running = [
            one for one in self._running if one.lost_at is None and one.made_tokens < one.asked_tokens
        ]
        admitted = False
        while self._waiting and not admitted and len(self._running) < self._pace.slots:
            stream = self._waiting.popleft()
            if stream.lost_at is None:
                self._running.append(stream)
                admitted = True
        length_s = self._pace.step_s + (self._pace.prefill_s if admitted else 0.0)
        self._step_ends_at = at + length_s if self._running else None


Timetable = _FixedTimetable | _BatchTimetable
"""Decides which stream gets the next token, and when.

`add` adds a request that has arrived, `due_at` returns the time of the next token or None, and `take` returns
the streams that get a token now, in order; a late one is in it several times.
"""

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_ROLE = b'{"role":"assistant","content":""}'
_CALLED = b'{"index":0,"id":"call-1","type":"function","function":{"name":"find","arguments":""}}'
_ARGUMENTS = b'{"index":0,"function":{"arguments":" \\"word\\","}}'


class Delivery(Struct, frozen=True):
    """How the tokens of each answer reach the client."""

    sizes: tuple[int, ...] = (1,)
    """Tokens per chunk after the first token's own chunk, repeated."""
    together: bool = False
    """Whether the tokens of a chunk are made in one step, as by speculative decoding, not one by one."""
    hidden_head: int = 0
    """Tokens made before the first that is shown, for example hidden reasoning."""
    hidden_tail: int = 0
    """Tokens made after the last that is shown."""
    empty_head: int = 0
    """First tokens whose chunks have an empty text."""
    calls_from: int | None = None
    """Number of the first token that is a part of a tool call's arguments."""
    fail_every: int | None = None
    """One request in this many loses its connection in mid-stream; None for no request."""
    role_at_once: bool = False
    """Whether the first event, with the role alone, is sent as the request arrives, not with a token."""
    ids: bool = False
    """Whether chunks have token ids."""
    totals: bool = False
    """Whether chunks have the running total, if the request asks for it."""


Pace = FixedPace | Batching


def chunk(data: bytes) -> bytes:
    """Return `data` as a chunk of an HTTP body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


class Answer:
    """The stream of one answer: the bytes that leave with each token."""

    def __init__(
        self, delivery: Delivery, asked_tokens: int, prompt_tokens: int, *, usage: bool, totals: bool
    ) -> None:
        """Start; `usage` and `totals`: whether the request asks for the total, and for running totals."""
        self._delivery = delivery
        self._asked = asked_tokens
        self._prompt = prompt_tokens
        self._has_usage = usage
        self._has_totals = totals and delivery.totals
        self._held: list[int] = []
        """Numbers of tokens that wait for their chunk."""
        self._chunks = 0
        self._in_call = False

    def first_event(self) -> bytes:
        """Return the head of the answer and its first event, which has the role alone."""
        return HEAD + chunk(self._event(_ROLE, 0))

    def token(self, number: int) -> tuple[bytes, list[int]]:
        """Return (the chunk to write as token `number` is made, or b"", the tokens that it shows)."""
        delivery, last = self._delivery, number == self._asked - 1
        hidden = number < delivery.hidden_head or number >= self._asked - delivery.hidden_tail
        if not hidden:
            self._held.append(number)
        data, shown = b"", list[int]()
        if self._held and (last or hidden or len(self._held) >= self._size()):
            shown, self._held = self._held, []
            self._chunks += 1
            data = chunk(self._shown(shown, number + 1, last=last))
        elif last:
            data = chunk(self._event(b"{}", number + 1, b'"length"'))
        return data, shown

    def _size(self) -> int:
        """Return the tokens of the next chunk: one in the first, as after a prefill."""
        sizes = self._delivery.sizes
        return 1 if not self._chunks else sizes[(self._chunks - 1) % len(sizes)]

    def _shown(self, numbers: list[int], made: int, *, last: bool) -> bytes:
        delivery = self._delivery
        ids = b',"token_ids":[%s]' % b",".join(b"%d" % (1000 + one) for one in numbers)
        ids = ids if delivery.ids else b""
        finish = b'"length"' if last else b"null"
        first = numbers[0]
        if delivery.calls_from is not None and first >= delivery.calls_from:
            call, self._in_call = (_ARGUMENTS if self._in_call else _CALLED), True
            return self._event(b'{"tool_calls":[%s]}' % call, made, finish, ids)
        text = b"" if first < delivery.empty_head else b" word" * len(numbers)
        return self._event(b'{"content":"%s"}' % text, made, finish, ids)

    def _event(self, delta: bytes, made: int, finish: bytes = b"null", ids: bytes = b"") -> bytes:
        usage = b',"usage":' + self._usage(made) if self._has_totals else b""
        return (
            b'data: {"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1760000000,'
            b'"model":"truth","choices":[{"index":0,"delta":%s,"logprobs":null,"finish_reason":%s%s}]%s}\n\n'
            % (delta, finish, ids, usage)
        )

    def ending(self) -> bytes:
        """Return the bytes that end the stream after its last token."""
        events = b""
        if self._has_usage:
            usage = self._usage(self._asked)
            events = chunk(b'data: {"id":"chatcmpl-0","model":"truth","choices":[],"usage":%s}\n\n' % usage)
        return events + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"

    def _usage(self, generated: int) -> bytes:
        total = self._prompt + generated
        form = b'{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d}'
        return form % (self._prompt, total, generated)


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
        if not number:
            self._write(answer.first_event())
        data, _ = answer.token(number)
        self._write(data)
        stream.stamps.append(perf_counter())
        if number == stream.asked_tokens - 1:
            self._stream = self._stream_answer = None
            self._write(answer.ending())

    def _answer(self, method: str, path: str, body: bytes, at: float) -> None:
        if path == "/v1/chat/completions":
            self._begin(json.loads(body), at)
        elif path == "/v1/models":
            self._reply({"object": "list", "data": [{"id": "truth", "object": "model"}]})
        elif path == "/book.txt":
            self._reply(book(), "text/plain")
        elif path == "/truth" and method == "POST":
            self._server.keep_to(msgspec.json.decode(body, type=Pace))
            self._reply("")
        elif path == "/truth":
            self._reply(self._server.streams)
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
            Delivery(ids=True),
            self._stream.asked_tokens,
            prompt_tokens,
            usage=bool(options.get("include_usage")),
            totals=bool(options.get("continuous_usage_stats")),
        )
        self._server.begin(self, self._stream)

    def _reply(self, found: object, kind: str = "application/json", status: bytes = b"200 OK") -> None:
        body = found.encode() if isinstance(found, str) else msgspec.json.encode(found)
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
        self._loop = asyncio.get_running_loop()
        self._timetable: Timetable = _FIRST_PACE.timetable()
        self._connections: dict[Stream, Connection] = {}
        self._inbox: deque[tuple[Connection, float, bytes]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")

    def keep_to(self, pace: Pace) -> None:
        """Set the pace, and forget all requests."""
        self._timetable = pace.timetable()
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
