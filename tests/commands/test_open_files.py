"""The limit of open files: raised at the start, and named where it is too low for what is to be watched."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

pytestmark = pytest.mark.process
SERVERS = 60
PAGE = 'vllm:num_requests_running{model_name="m"} 1.0\nvllm:generation_tokens_total{model_name="m"} 7.0\n'


@pytest.fixture
async def config(tmp_path: Path) -> AsyncIterator[Path]:
    """Return a configuration of 60 servers, which answer."""

    async def answer(_: web.BaseRequest) -> web.Response:
        return web.Response(text=PAGE)

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    servers = (
        f'[[backends]]\nname = "b{n}"\nurl = "http://127.0.0.1:{port}/{n}"\nengine = "vllm"\n'
        for n in range(SERVERS)
    )
    path = tmp_path / "x.toml"
    path.write_text("".join(servers), encoding="utf-8")
    yield path
    await runner.cleanup()


async def report(config: Path, soft: int, hard: int) -> tuple[dict[str, Any], str]:
    """Return (the report, standard error) with these limits of open files, once all servers were asked."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sparktop", "snapshot", "--config", str(config)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "HOME": str(config.parent), "XDG_STATE_HOME": str(config.parent)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard)),
    )
    async with asyncio.timeout(120):
        out, err = await process.communicate()
    assert process.returncode == 0, err
    return json.loads(out), err.decode()


async def test_a_low_hard_limit_says_how_many_are_watched(config: Path) -> None:
    """With 64 open files a part of 60 servers is watched, the others say why, and nothing else fails."""
    found, err = await report(config, 64, 64)
    failed = [one for one in found["backends"] if not one["ok"]]
    assert 0 < len(failed) < SERVERS
    wanted = "is not watched: the limit of open files allows 24 connections: raise it (ulimit -n)"
    assert all(wanted in json.dumps(one) for one in failed)
    assert "bug" not in err


async def test_a_low_soft_limit_is_raised(config: Path) -> None:
    """A soft limit is no obstacle: all 60 servers are watched."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    found, _ = await report(config, 64, hard)
    assert all(one["ok"] for one in found["backends"])
