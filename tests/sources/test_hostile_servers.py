"""Servers that answer badly: each is one clean line; others go on.

Servers behind TLS whose certificate a private authority signed: `tls_ca` of backends and routers.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import ssl
import struct
import sys
import tracemalloc
import zlib
from contextlib import suppress
from pathlib import Path

import pytest

from sparktop.model.engine import EngineSample
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.targets import BackendTarget
from sparktop.net.client import SharedSession
from sparktop.sources.engine_http import EngineSource
from sparktop.sources.source import PollResult
from sparktop.watch.scheduler import PollGroup
from tests.sources.conftest import HEALTHY_PAGE, Handler, RawServer, Serve, answer
from tests.sweep.stream_server import StreamServer
from tests.watch.prometheus.certificates import make_certificates, signed

AMPLE_S = 100.0
SHORT_S = 0.15
"""The deadline where the test is that it passes; no other outcome may depend on how fast this machine is."""
PEAK_BYTES = 24 * 1024 * 1024
"""Both ends live in this process: twice the cap of 4 MiB for joining a body, and the server's own buffers."""
EVIL = "\x1b[31mred\x1b]0;title\x07 \u202egnp.exe [red]bold[/red] \u2066x"
MIB = b"x" * 1024 * 1024

PACKED = gzip.compress(HEALTHY_PAGE)
JSON_ERROR = b'{"error": {"message": "the engine died of \\u001b[2J thirst", "code": 500}}'


def forever(head: bytes, piece: bytes) -> Handler:
    """Answer every request with `head`, then `piece` again and again."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head)
        while True:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)

    return talk


async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Accept, read, and never answer."""
    while await reader.read(1024):
        pass
    writer.close()


async def reset_in_mid_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send half a page, then a TCP reset."""
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n" + HEALTHY_PAGE)
    await writer.drain()
    raw: socket.socket = writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read a request and close."""
    await reader.readuntil(b"\r\n\r\n")
    writer.close()


def bomb() -> bytes:
    """Return 200 kB that unpack to 200 MiB: after a full flush every block unpacks alike."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    zeros = bytes(1024 * 1024)
    first = packer.compress(zeros) + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(zeros) + packer.flush(zlib.Z_FULL_FLUSH)
    return first + 200 * block


def redirect(location: str) -> bytes:
    return answer(b"", "302 Found", f"Location: {location}")


def packed(body: bytes, encoding: str = "gzip") -> bytes:
    return answer(body, "200 OK", f"Content-Encoding: {encoding}")


K = FailureKind
Reply = bytes | Handler
BAD: dict[str, tuple[Reply, FailureKind, str]] = {
    "garbage instead of HTTP": (b"\x00\xff\xfe garbage \x1b[2J\r\n\r\n", K.MALFORMED, "HTTP"),
    "a banner of another protocol": (b"SSH-2.0-OpenSSH_9.6\r\n", K.MALFORMED, "port"),
    "html": (answer(b"<!DOCTYPE html><html><body>" + EVIL.encode()), K.MALFORMED, "HTML"),
    "metrics disabled": (
        answer(b"# TYPE python_info gauge\npython_info 1.0\n"),
        K.METRICS_DISABLED,
        "no engine figures",
    ),
    "endless body": (forever(b"HTTP/1.1 200 OK\r\n\r\n", MIB), K.TOO_LARGE, "4 MiB"),
    "announced terabyte": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\nx",
        K.TOO_LARGE,
        "4 MiB",
    ),
    "gzip bomb": (packed(bomb()), K.TOO_LARGE, "4 MiB"),
    "endless packed nothing": (  # a gzip header whose file name never ends unpacks to no byte at all
        forever(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n\x1f\x8b\x08\x08" + b"x" * 6, MIB),
        K.TOO_LARGE,
        "4 MiB",
    ),
    "gzip that stops": (packed(PACKED[:-20]), K.MALFORMED, "broke off"),
    "unknown packing": (packed(b"?", "br"), K.UNSUPPORTED, "br"),
    "nothing at all": (say_nothing, K.TIMEOUT, "no answer"),
    "401": (answer(b"{}", "401 Unauthorized"), K.UNAUTHORIZED, "401: "),
    "404 of another program": (
        answer(b"<html>", "404 Not Found", "Server: SimpleHTTP/0.6 Python/3.11"),
        K.NOT_FOUND,
        "(SimpleHTTP/0.6 Python/3.11) has no such page: is it an inference server",
    ),
    "500 with words": (answer(JSON_ERROR, "500 Oops"), K.HTTP, ": the engine died of [2J thirst"),
    "500 with evil words": (answer(EVIL.encode(), "500 Oops"), K.HTTP, "[red]bold"),
    "503": (answer(b'{"error": "Model is loading"}', "503 Busy"), K.LOADING, "503: "),
    "redirect loop": (redirect("/metrics"), K.REDIRECT, "/metrics"),
    "redirect to a host without a scheme": (redirect("//192.0.2.1/"), K.REDIRECT, "give that address"),
    "redirect to nowhere": (redirect(""), K.REDIRECT, "without saying where to"),
    "redirect elsewhere": (redirect("http://192.0.2.1/\x1b[31m"), K.REDIRECT, "192.0.2.1"),
    "reset in mid-body": (reset_in_mid_body, K.UNREACHABLE, "reset"),
    "closed in mid-body": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 90000\r\n\r\n" + HEALTHY_PAGE,
        K.MALFORMED,
        "broke off",
    ),
    "hangs up": (hang_up, K.UNREACHABLE, "closed"),
    "length that is no number": (b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nx", K.MALFORMED, "HTTP"),
    "endless headers": (forever(b"HTTP/1.1 200 OK\r\n", b"X-One: y\r\n" * 1000), K.MALFORMED, "HTTP"),
}


class Impatient(EngineSource):
    """A source whose deadline the test sets, whatever its group's is."""

    deadline_s = AMPLE_S

    async def poll(self, deadline_s: float) -> EngineSample | Failure:
        """Poll with the deadline of the test."""
        return await super().poll(min(deadline_s, self.deadline_s))


async def watch(tested: BackendTarget, serve: Serve, deadline_s: float = AMPLE_S) -> Failure:
    """Poll `tested` beside a healthy server until both have answered often enough; return its failure."""
    healthy = await serve({"/metrics": answer(HEALTHY_PAGE)})
    read: dict[str, list[PollResult]] = {"tested": [], "healthy": []}
    enough = asyncio.Event()

    def deliver(name: str, reading: PollResult, _: float | None) -> None:
        read[name].append(reading)
        if read["tested"] and len(read["healthy"]) >= 3:
            enough.set()

    session = SharedSession()
    impatient = Impatient(tested, session=session)
    impatient.deadline_s = deadline_s
    sources = [impatient, EngineSource(healthy.target("healthy"), session=session)]
    group = PollGroup("group", sources, 0.005, deliver, longest_s=AMPLE_S)
    task = asyncio.ensure_future(group.run())
    await enough.wait()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert all(isinstance(reading, EngineSample) for reading in read["healthy"])
    failure = read["tested"][0]
    assert isinstance(failure, Failure)
    check_line(failure.message)
    return failure


def check_line(text: str) -> None:
    """Assert that `text` is one clean line."""
    assert text.isprintable()
    assert 10 < len(text) <= 200
    assert not set(text) & set("\u202e\u2066")


@pytest.mark.parametrize("case", BAD)
async def test_a_bad_answer_is_one_clean_line(case: str, serve: Serve) -> None:
    """A bad answer gives its kind and one clean line, in bounded memory, and the healthy server goes on."""
    reply, kind, words = BAD[case]
    server: RawServer = await serve(reply)
    tracemalloc.start()
    try:
        failure = await watch(
            server.target("tested"), serve, SHORT_S if case == "nothing at all" else AMPLE_S
        )
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (failure.kind, words in failure.message) == (kind, True), failure
    assert peak_bytes < PEAK_BYTES


async def test_a_closed_port_is_refused(serve: Serve) -> None:
    """The failure names the port on which nothing listens, with its address."""
    server: RawServer = await serve(b"")
    await server.stop()
    failure = await watch(server.target("tested"), serve)
    assert failure.kind is FailureKind.REFUSED
    assert failure.message == f"nothing listens on 127.0.0.1:{server.port} (connection refused)"


async def test_a_real_tls_port_asked_in_http_says_https(serve: Serve) -> None:
    """Whatever a real TLS server makes of plain HTTP, the line says to try https://."""
    server: RawServer = await serve(b"", tls=ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    failure = await watch(BackendTarget("tested", f"http://127.0.0.1:{server.port}"), serve)
    assert "https://" in failure.message


async def test_https_to_a_plain_port_says_http(serve: Serve) -> None:
    """A plain server, asked over TLS, is a TLS failure that says to write http://."""

    async def complain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1024)
        writer.write(answer(b"bad request", "400 Bad Request"))

    server: RawServer = await serve(complain)
    failure = await watch(BackendTarget("tested", f"https://127.0.0.1:{server.port}"), serve)
    assert failure.kind is FailureKind.TLS
    assert "http://" in failure.message


PAGES = {
    "/metrics": answer(HEALTHY_PAGE),
    "/version": answer(b'{"version": "0.32.0"}'),
    "/v1/models": answer(json.dumps({"object": "list", "data": [{"id": "tiny"}]}).encode()),
}


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """File of a private authority; that of a server that it signed is beside it."""
    return make_certificates(tmp_path_factory.mktemp("tls"))["ca"]


async def test_a_backend_is_polled_with_its_own_authority(serve: Serve, ca: Path, tmp_path: Path) -> None:
    """Without `tls_ca` the line names it; with it the page is read; a file that is none of that is named."""
    server = await serve(PAGES, tls=signed(ca))
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("no certificate", encoding="utf-8")
    found = []
    for tls_ca in (None, str(ca), str(wrong)):
        source = EngineSource(BackendTarget("a", server.url, engine="vllm", tls_ca=tls_ca))
        found.append(await source.poll(5.0))
        await source.close()
    unknown, known, unreadable = found
    assert isinstance(unknown, Failure)
    assert unknown.kind is FailureKind.TLS
    assert unknown.message.endswith("tls_ca in the config names the file that signs it")
    assert isinstance(known, EngineSample)
    assert known.lanes[0].running == 3.0
    assert isinstance(unreadable, Failure)
    assert "holds no certificate" in unreadable.message


@pytest.mark.process
@pytest.mark.timeout(60)
async def test_load_is_put_on_a_server_of_a_private_authority(ca: Path, tmp_path: Path) -> None:
    """A sweep takes `tls_ca` of a backend from the configuration."""
    server = StreamServer()
    await server.start(signed(ca))
    config = tmp_path / "sparktop.toml"
    config.write_text(
        f'[[backends]]\nname = "a"\nurl = "https://127.0.0.1:{server.port}"\ntls_ca = "{ca}"\n',
        encoding="utf-8",
    )
    words = f"sweep a --config {config} -c 1 --runs 1 --pp 40 --tg 9".split()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sparktop", *words, "--format", "json"),
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "TERM": "dumb"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    await server.stop()
    assert process.returncode == 0, (out + err).decode()
