"""A name server that never answers is named, and not taken for a server that is stuck."""

from __future__ import annotations

import asyncio

import pytest

from sparktop.model.failure import Failure, FailureKind
from sparktop.model.targets import BackendTarget
from sparktop.net import client
from sparktop.sources.engine_http import EngineSource


async def test_a_silent_name_server_has_words_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a name is looked up, a missed deadline is the name server's."""

    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(client, "look_up", never)
    source = EngineSource(BackendTarget("b", "http://spark-a.lan:8000"))
    found = await source.poll(0.05)
    await source.close()
    assert isinstance(found, Failure)
    assert found.kind is FailureKind.DNS
    assert found.message == "no DNS answer for spark-a.lan:8000 in 0.05 s: check DNS or use its IP address"
