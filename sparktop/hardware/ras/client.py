"""One query to NCCL's RAS thread over TCP: read-only, bounded in time and size.

The protocol is lines of text. `CLIENT PROTOCOL 2` shows that it is NCCL that listens, `SET FORMAT json`
whether it writes JSON, and `STATUS` asks for the report, after which NCCL closes the connection. Nothing is
sent after `STATUS`, and the connection is not half-closed: either would make the RAS thread spin.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from sparktop.hardware.ras.json_form import parse_json
from sparktop.hardware.ras.terms import RanksError
from sparktop.hardware.ras.text_form import parse_text
from sparktop.model.failure import FailureKind
from sparktop.model.ranks import RanksAnswer
from sparktop.model.text import clean
from sparktop.python310.timeouts import timeout

MOST_BYTES = 4 << 20
"""Most bytes of an answer: one rank of one communicator takes about 500 bytes of JSON."""
_CONNECT_S = 2.0
_LINE_S = 3.0
"""Seconds for NCCL to acknowledge a command: its thread does that at once, also while the GPUs hang."""
_LONGEST_LINE = 2048
_GATHER_S = 5
"""Seconds that NCCL waits for each leg of gathering. Never 0: that would leak memory in the job for good."""

Address = tuple[str, int]


class QueryError(Exception):
    """A query without an answer; the message is one clean line."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        """Store the kind of failure and the message."""
        super().__init__(message)
        self.kind = kind


async def query(address: Address, deadline_s: float) -> RanksAnswer:
    """Ask the RAS thread at `address` (host, port) and return its answer, within `deadline_s` seconds.

    Raises:
        QueryError: nothing listens there, the answer is late or too large, or it is not one of NCCL.
    """
    where = place(address)
    try:
        async with timeout(deadline_s):
            return await _asked(address, where)
    except TimeoutError:
        message = f"NCCL at {where} gave no complete answer within {deadline_s:g} s: is its process stopped?"
        raise QueryError(FailureKind.TIMEOUT, message) from None
    except RanksError as error:
        raise QueryError(FailureKind.MALFORMED, f"{where}: {error}") from None
    except OSError as error:
        message = f"{where}: the connection broke off: {clean(error.strerror or type(error).__name__)}"
        raise QueryError(FailureKind.UNREACHABLE, message) from None


async def _asked(address: Address, where: str) -> RanksAnswer:
    reader, writer = await _connected(address, where)
    try:
        if not (await _said(reader, writer, b"CLIENT PROTOCOL 2\n")).startswith(b"SERVER PROTOCOL"):
            raise RanksError("something else than NCCL listens there")
        has_json = (await _said(reader, writer, b"SET FORMAT json\n")).strip() == b"OK"
        await _said(reader, writer, b"TIMEOUT %d\n" % _GATHER_S)
        writer.write(b"STATUS\n" if has_json else b"VERBOSE STATUS\n")
        await writer.drain()
        text = (await _rest(reader)).decode("utf-8", "replace")
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
    return parse_json(text) if has_json else parse_text(text)


async def _connected(address: Address, where: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to `address`.

    Raises:
        QueryError: nothing listens there.
    """
    try:
        async with timeout(_CONNECT_S):
            return await asyncio.open_connection(*address, limit=_LONGEST_LINE)
    except TimeoutError:
        raise QueryError(FailureKind.TIMEOUT, f"no connection to {where} within {_CONNECT_S:g} s") from None
    except (OSError, UnicodeError, OverflowError):
        raise QueryError(FailureKind.REFUSED, f"no RAS thread of NCCL listens at {where}") from None


async def _said(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, command: bytes) -> bytes:
    """Send a command and return the line that acknowledges it."""
    writer.write(command)
    await writer.drain()
    try:
        async with timeout(_LINE_S):
            line = await reader.readline()
    except TimeoutError:
        message = f"it accepts connections but acknowledged nothing within {_LINE_S:g} s"
        raise QueryError(FailureKind.TIMEOUT, f"NCCL's RAS thread hangs: {message}") from None
    except ValueError:
        raise RanksError("something else than NCCL listens there") from None
    if not line.endswith(b"\n"):
        raise RanksError("the connection was closed before the answer")
    return line


async def _rest(reader: asyncio.StreamReader) -> bytes:
    """Return everything up to the end of the connection.

    Raises:
        RanksError: this is more than `MOST_BYTES`.
    """
    body = bytearray()
    while chunk := await reader.read(1 << 16):
        body += chunk
        if len(body) > MOST_BYTES:
            raise RanksError(f"an answer of over {MOST_BYTES >> 20} MiB")
    return bytes(body)


def place(address: Address) -> str:
    """Return "host:port", with an IPv6 address in square brackets."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
