"""A small OpenAI-like server that can be made to behave badly, request by request."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

Behave = Callable[["Asked"], Awaitable[None]]
OK_HEAD = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"


@dataclass(slots=True)
class Asked:
    """One request for a completion, and the way to answer it."""

    number: int
    """Counted from 0 over all completions, or over those of the same behaviour."""
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    writer: asyncio.StreamWriter
    server: StreamServer
    close: bool = False
    """Set to close the connection after the answer."""

    @property
    def tokens(self) -> int:
        """The number of tokens to generate, under either of the two names that OpenAI gave the field."""
        return int(self.body.get("max_tokens") or self.body["max_completion_tokens"])

    @property
    def prompt(self) -> str:
        """The prompt, in either interface; all messages of a conversation."""
        if "prompt" in self.body:
            return str(self.body["prompt"])
        return " ".join(message["content"] for message in self.body["messages"])

    @property
    def prompt_tokens(self) -> int:
        """The prompt's length as this server counts it."""
        return self.server.count(self.prompt) + self.server.template_tokens

    def write(self, data: bytes | str) -> None:
        """Write bytes as they are."""
        self.writer.write(data.encode() if isinstance(data, str) else data)

    def start(self, headers: str = "") -> None:
        """Write the head of a stream in chunks."""
        self.write(f"{OK_HEAD}Transfer-Encoding: chunked\r\n{headers}\r\n")

    def chunk(self, data: bytes | str) -> None:
        """Write one chunk of the body."""
        raw = data.encode() if isinstance(data, str) else data
        self.write(b"%x\r\n%s\r\n" % (len(raw), raw))

    def event(self, found: object) -> None:
        """Write one event as a chunk of its own."""
        self.chunk(f"data: {json.dumps(found, separators=(',', ':'))}\n\n")

    def end(self) -> None:
        """Write what ends a stream and its body."""
        self.chunk("data: [DONE]\n\n")
        self.write("0\r\n\r\n")

    def token(
        self, ids: Sequence[int] | None = (7,), *, text: str = " word", finish: str | None = None
    ) -> dict[str, Any]:
        """Return the event of a chunk."""
        choice: dict[str, Any] = {"index": 0, "finish_reason": finish}
        if "messages" in self.body:
            choice["delta"] = {"content": text}
        else:
            choice["text"] = text
        if ids is not None and self.body.get("return_token_ids"):
            choice["token_ids"] = list(ids)
        return {"id": "cmpl-1", "object": "chunk", "model": self.body["model"], "choices": [choice]}

    def usage(self, generated: int | None = None) -> dict[str, Any]:
        """Return the event with the counts of the request."""
        made = self.tokens if generated is None else generated
        used = {"prompt_tokens": self.prompt_tokens, "completion_tokens": made}
        return {"id": "cmpl-1", "object": "chunk", "choices": [], "usage": used}

    async def stream(self, *, ids: bool = True) -> None:
        """Answer as a good server does: one token an event."""
        self.start()
        for index in range(self.tokens):
            last = index == self.tokens - 1
            self.event(self.token((7,) if ids else None, finish="length" if last else None))
            await self.server.step()
        if self.body.get("stream_options"):
            self.event(self.usage())
        self.end()

    def refuse(self, status: int, words: str, headers: str = "") -> None:
        """Answer with another status, and the error as OpenAI writes it."""
        self.reply(status, {"error": {"message": words, "code": status}}, headers)

    def reply(self, status: int, body: object, headers: str = "") -> None:
        """Answer with a whole body, JSON unless it is text, and with header lines."""
        self.write(page(status, body, headers))


def page(status: int, body: object, headers: str = "") -> bytes:
    """Return a complete HTTP response: JSON, or HTML where `body` is text."""
    kind = "text/html" if isinstance(body, str) else "application/json"
    raw = (body if isinstance(body, str) else json.dumps(body)).encode()
    head = f"HTTP/1.1 {status} Said\r\nContent-Type: {kind}\r\nContent-Length: {len(raw)}\r\n"
    return f"{head}{headers}\r\n".encode() + raw


class Behaviour(Protocol):
    """How a server behaves at addresses whose path begins with the behaviour's name."""

    @property
    def answer(self) -> Behave:
        """Function that answers a completion."""

    @property
    def small(self) -> Callable[[str, dict[str, str], dict[str, Any]], bytes | None]:
        """Function that returns the response to any other request; None where it is the usual one."""

    @property
    def idle_s(self) -> float | None:
        """Seconds after which an idle connection is closed once an answer came over it; None for never."""


@dataclass(slots=True)
class StreamServer:
    """The server; `behave` answers each completion, or the behaviour that its path names."""

    behave: Behave = field(default=lambda asked: asked.stream())
    behaviours: Mapping[str, Behaviour] = field(default_factory=dict)
    numbers: Counter[str] = field(default_factory=Counter)
    """Completions so far by behaviour."""
    models: tuple[str, ...] = ("tiny",)
    template_tokens: int = 5
    has_tokenize: bool = True
    word_tokens: Callable[[str], int] = field(default=lambda word: (len(word) + 7) // 8)
    """What a word costs: one token for each eight letters begun, unless set otherwise."""
    port: int = 0
    asked: int = 0
    """Completions so far."""
    in_flight: int = 0
    most_in_flight: int = 0
    connections: int = 0
    """Open now."""

    bodies: list[dict[str, Any]] = field(default_factory=list)
    """Of all completions."""
    held: asyncio.Event = field(default_factory=asyncio.Event)
    """Set to let `hang` go on."""
    someone_waits: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a completion hangs."""
    all_gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while no connection is open."""
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set)

    @property
    def url(self) -> str:
        """The URL on which it listens."""
        return f"http://127.0.0.1:{self.port}"

    def count(self, text: str) -> int:
        """Return the number of tokens: words as the tokenizer counts them, marks like one-letter words."""
        words = text.replace(".", " .").replace(",", " ,").replace(":", " :").split()
        return sum(map(self.word_tokens, words))

    async def step(self) -> None:
        """Run the event loop once."""
        await asyncio.sleep(0)

    async def hang(self) -> None:
        """Wait until the test sets `held`."""
        self.someone_waits.set()
        await self.held.wait()

    async def start(self, tls: ssl.SSLContext | None = None) -> None:
        """Listen on a free port."""
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", 0, backlog=2048, limit=1 << 22, ssl=tls
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close everything."""
        self.held.set()
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1

        self.all_gone.clear()
        idle_s: list[float | None] = [None]
        try:
            while await self._answer(reader, writer, idle_s):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self.connections -= 1
            if not self.connections:
                self.all_gone.set()
            self._tasks.discard(task)
            writer.transport.abort()

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, idle_s: list[float | None]
    ) -> bool:
        async with asyncio.timeout(idle_s[0]):  # its error is an OSError, which ends the connection
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.split("\r\n")
        _, path, _ = first.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        raw = await reader.readexactly(int(headers.get("content-length", "0")))
        body = json.loads(raw) if raw else {}
        name = path.split("/")[1]
        special = self.behaviours.get(name)
        idle_s[0] = None if special is None else special.idle_s
        if not path.endswith("/completions"):
            found = None if special is None else special.small(path.removeprefix(f"/{name}"), headers, body)
            if found is not None:
                writer.write(found)
            else:
                self._small(path, body, writer)
            return True
        number = self.asked if special is None else self.numbers[name]
        self.numbers[name] += 1
        asked = Asked(number, path, headers, body, writer, self)
        self.asked += 1
        self.bodies.append(body)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await (self.behave if special is None else special.answer)(asked)
        finally:
            self.in_flight -= 1
        return not asked.close

    def _small(self, path: str, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        found: dict[str, Any] | None = None
        if path.endswith("/v1/models"):
            found = {"object": "list", "data": [{"id": name} for name in self.models]}
        elif path.endswith("/tokenize") and self.has_tokenize:
            if "messages" in body:
                found = {"count": self.count(body["messages"][0]["content"]) + self.template_tokens}
            elif body.get("add_special_tokens") is False:
                found = {"count": self.count(body["prompt"])}
            else:
                found = {"count": self.count(body["prompt"]) + self.template_tokens}
        raw = json.dumps(found or {"detail": "Not Found"}).encode()
        status = "200 OK" if found else "404 Not Found"
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(raw)}\r\n\r\n".encode() + raw)


async def hang_after_three(asked: Asked) -> None:
    """Send three tokens, then nothing more; calibrations are answered whole."""
    if asked.number == 0:
        await asked.stream()
        return
    asked.start()
    for _ in range(3):
        asked.event(asked.token())
    await asked.writer.drain()
    await asked.server.hang()
