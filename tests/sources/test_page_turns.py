"""Pages that arrive together are read one after the other, with room for a key press between them."""

from __future__ import annotations

import asyncio

import pytest

from sparktop.engines import read_page
from sparktop.engines.exposition import PageMemory
from sparktop.model.engine import EngineSample
from sparktop.net.client import SharedSession
from sparktop.sources import engine_http
from sparktop.sources.engine_http import EngineSource
from tests.sources.conftest import Serve, answer

PAGE = b'process_start_time_seconds 1.0\nvllm:num_requests_running{engine="0",model_name="m"} 1.0\n'


async def test_other_work_runs_between_two_pages(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many pages have arrived, the event loop runs once between any two that are read."""
    rounds = 0
    read_at: list[int] = []

    async def go_round() -> None:
        nonlocal rounds
        while True:
            await asyncio.sleep(0)
            rounds += 1

    def noted(
        body: bytes, *, at: float, engine: str, answer_ms: float | None, memory: PageMemory
    ) -> EngineSample:
        read_at.append(rounds)
        return read_page(body, at=at, engine=engine, answer_ms=answer_ms, memory=memory)

    monkeypatch.setattr(engine_http, "read_page", noted)
    session = SharedSession()
    servers = [await serve({"/metrics": answer(PAGE)}) for _ in range(6)]
    sources = [EngineSource(server.target(f"s{i}"), session=session) for i, server in enumerate(servers)]
    runner = asyncio.ensure_future(go_round())
    readings = await asyncio.gather(*(source.poll(10.0) for source in sources))
    runner.cancel()
    await asyncio.gather(runner, return_exceptions=True)
    for source in sources:
        await source.close()
    assert all(isinstance(reading, EngineSample) for reading in readings)
    assert len(read_at) == len(set(read_at)) == len(sources)
