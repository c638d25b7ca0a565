"""URLs are parsed once, and unusable ones are refused before anything is sent; certificates are verified.

Commands and messages come out of their lines as they went in.
"""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import msgspec
import pytest

from sparktop.sweep.generator.connection import ConnectionPool, resolve
from sparktop.sweep.generator.wire import COMMANDS, MESSAGES, Calibrate, WorkerTarget, encode_line
from sparktop.sweep.plan.plan import Api
from sparktop.sweep.terms.request_errors import RequestFailedError
from tests.known import known


class Noting:
    """A reader that tells when its connection has ended."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    def take(self, at: float, data: bytes) -> None:
        """Ignore a read."""

    def lost(self, at: float, error: Exception | None) -> None:  # noqa: ARG002 - only that it came
        """Tell the end."""
        self.ended.set()


@pytest.mark.outside
async def test_a_certificate_that_nobody_signed(certificate: tuple[Path, Path]) -> None:
    """TLS with a certificate that cannot be verified does not open; a trusted one carries requests."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    heard = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.set_result(await reader.readexactly(5))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    endpoint = await resolve(WorkerTarget(url), 0.0)
    with pytest.raises(ssl.SSLCertVerificationError):
        await ConnectionPool(endpoint, 5.0).open()
    known(endpoint.tls).load_verify_locations(certificate[0])
    pool = ConnectionPool(endpoint, 5.0)
    connection = await pool.open()
    connection.reader = noting = Noting()
    connection.send(b"hello")
    assert await heard == b"hello"
    await noting.ended.wait()
    assert len(pool.connect_ms) == 1
    server.close()


@pytest.mark.outside
async def test_a_head_holds_what_a_server_needs() -> None:
    """A head names host, key and length, and asks for nothing packed."""
    found = await resolve(WorkerTarget("http://[::1]:8000", api_key="key-1"), 0.0)
    head = found.head("POST", "/v1/completions", 12).decode()
    assert head.startswith("POST /v1/completions HTTP/1.1\r\nHost: [::1]:8000\r\n")
    assert head.endswith("\r\n\r\n")
    for line in ("Authorization: Bearer key-1", "Content-Length: 12", "Accept-Encoding: identity"):
        assert f"\r\n{line}\r\n" in head
    assert "key-1" not in repr(found)


@pytest.mark.parametrize(
    ("url", "key", "word"),
    [
        ("ftp://a", None, "unreachable"),
        ("nonsense", None, "unreachable"),
        ("http://a:99999", None, "unreachable"),
        ("http://[::1", None, "unreachable"),
        ("http://127.0.0.1", "ke\ny", "unreachable"),
        ("http://127.0.0.1", "schlüssel", "unreachable"),
        ("http://" + "a" * 70 + ".invalid", None, "dns"),
    ],
)
async def test_what_cannot_be_used_is_told(url: str, key: str | None, word: str) -> None:
    """A wrong scheme, port or key, and a name that cannot exist, end in one line each."""
    with pytest.raises(RequestFailedError) as caught:
        await resolve(WorkerTarget(url, api_key=key), 0.0)
    assert caught.value.failure.word == word
    assert caught.value.failure.message.isprintable()


def test_a_key_stands_in_no_repr() -> None:
    """A target's key is sent, and printed nowhere."""
    target = WorkerTarget("http://a:1", 'm"\x1b\n', Api.COMPLETIONS, "key", router=True)
    assert b'"key"' in encode_line(Calibrate("c", target, 128, 64))
    assert "key" not in repr(target).replace("api_key", "")


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b"[]",
        b"3",
        b"{",
        b'{"type":"Nonsense"}',
        b'{"type":"RunLoad"}',
        b'{"type":"Batch","id":3}',
    ],
)
def test_lines_that_do_not_fit_are_refused(line: bytes) -> None:
    """An invalid line is an error, on whichever side it is read."""
    with pytest.raises(msgspec.MsgspecError):
        COMMANDS.decode(line)
    with pytest.raises(msgspec.MsgspecError):
        MESSAGES.decode(line)
