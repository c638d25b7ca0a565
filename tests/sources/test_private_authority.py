"""Servers behind TLS whose certificate a private authority signed: `tls_ca` of backends and routers."""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from sparktop.model.engine import EngineSample
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.targets import BackendTarget
from sparktop.sources.engine_http import EngineSource
from tests.sources.conftest import HEALTHY_PAGE, Serve, answer
from tests.sweep.stream_server import StreamServer
from tests.watch.prometheus.certificates import make_certificates

PAGES = {
    "/metrics": answer(HEALTHY_PAGE),
    "/version": answer(b'{"version": "0.32.0"}'),
    "/v1/models": answer(json.dumps({"object": "list", "data": [{"id": "tiny"}]}).encode()),
}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Files of a private authority and of a server that it signed, by name."""
    return make_certificates(tmp_path_factory.mktemp("tls"))


@asynccontextmanager
async def behind_tls(port: int, certificates: dict[str, Path]) -> AsyncIterator[str]:
    """Yield the https:// URL of a front that passes bytes on to `port`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates["server"], certificates["server-key"])

    async def passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(passed(reader, back), passed(there, writer))

    front = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield f"https://127.0.0.1:{front.sockets[0].getsockname()[1]}"
    finally:
        front.close()


async def test_a_backend_is_polled_with_its_own_authority(
    serve: Serve, certificates: dict[str, Path], tmp_path: Path
) -> None:
    """Without `tls_ca` the line names it; with it the page is read; a file that is none of that is named."""
    server = await serve(PAGES)
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("no certificate", encoding="utf-8")
    async with behind_tls(server.port, certificates) as url:
        found = []
        for tls_ca in (None, str(certificates["ca"]), str(wrong)):
            source = EngineSource(BackendTarget("a", url, engine="vllm", tls_ca=tls_ca))
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
async def test_load_is_put_on_a_server_of_a_private_authority(
    certificates: dict[str, Path], tmp_path: Path
) -> None:
    """A sweep takes `tls_ca` of a backend from the configuration."""
    server = StreamServer()
    await server.start()
    folder = str(certificates["ca"].parent)
    async with behind_tls(server.port, certificates) as url:
        config = tmp_path / "sparktop.toml"
        config.write_text(
            f'[[backends]]\nname = "a"\nurl = "{url}"\ntls_ca = "{folder}/ca.pem"\n', encoding="utf-8"
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
