"""Serves the report of a simulated RAS thread by NCCL's protocol, with the faults of its versions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from msgspec import Struct

from sparktop.demo.ras.document import as_json, as_text
from sparktop.model.ranks import RanksAnswer

_HOST = "127.0.0.1"
_LONGEST_LINE = 1024


class Habits(Struct, frozen=True):
    """How a simulated RAS thread differs from that of the newest NCCL."""

    json: bool = True
    """Whether `SET FORMAT json` is known (2.28.7 and newer)."""
    comma: bool = True
    """False: the JSON of missing ranks lacks a comma (2.28.7 and 2.28.9)."""
    gather_s: float = 0.0
    """Seconds that gathering takes; a stopped process makes it take 5 s and more."""
    ends_after: int | None = None
    """Bytes of the answer after which the connection breaks off; None: it is sent completely."""
    body: bytes | None = None
    """Sent in place of the report; None: the report is sent."""
    deaf: bool = False
    """True: connections are accepted and nothing is ever said, as by a stopped process."""


class RasServer:
    """A simulated RAS thread that listens on a free port of 127.0.0.1."""

    def __init__(self, report: Callable[[], RanksAnswer], habits: Habits = Habits()) -> None:
        """Answer each `STATUS` with what `report` returns at that time."""
        self._report = report
        self.habits = habits
        """How it answers; may be changed at any time."""
        self.asked: list[str] = []
        """Every command received, in order."""
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    @property
    def address(self) -> tuple[str, int]:
        """(host, port) at which it listens."""
        assert self._server is not None  # noqa: S101 - opened by the caller
        host, port = self._server.sockets[0].getsockname()[:2]
        return str(host), int(port)

    async def open(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._talk, _HOST, 0, limit=_LONGEST_LINE)

    async def close(self) -> None:
        """Stop to listen, and close all connections."""
        if self._server is not None:
            self._server.close()
            for writer in self._open:
                writer.close()
            await self._server.wait_closed()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            with suppress(OSError, ValueError):
                await self._answer(reader, writer)
        finally:
            self._open.discard(writer)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        in_json = False
        while line := await reader.readline():
            command = line.decode("utf-8", "replace").strip()
            self.asked.append(command)
            word = command.lower()
            if self.habits.deaf:
                continue
            if word in {"status", "verbose status"}:
                await asyncio.sleep(self.habits.gather_s)
                writer.write(self._body(in_json=in_json))
                await writer.drain()
                return
            writer.write(self._said(word, command))
            in_json = in_json or (word == "set format json" and self.habits.json)
            await writer.drain()

    def _said(self, word: str, command: str) -> bytes:
        if word.startswith("client protocol "):
            return b"SERVER PROTOCOL 2\n"
        known = word.startswith("timeout ") or (self.habits.json and word.startswith("set format "))
        return b"OK\n" if known else f"ERROR: Unknown command {command}\n".encode()

    def _body(self, *, in_json: bool) -> bytes:
        if self.habits.body is not None:
            return self.habits.body
        report = self._report()
        text = as_json(report, comma=self.habits.comma) if in_json else as_text(report)
        return text.encode()[: self.habits.ends_after]
