"""The listening sockets of the agent when the system refuses to accept connections."""

from __future__ import annotations

import asyncio
import errno
import socket

import pytest

from sparktop.agent.access import bind
from sparktop.agent.gate import Gate, Limits

pytestmark = pytest.mark.outside


async def failed_accepts(monkeypatch: pytest.MonkeyPatch, number: int) -> int:
    """Return how often an open gate calls accept in 20 turns of the loop if each call fails with `number`."""
    loop, count = asyncio.get_running_loop(), 0

    async def fail(_listener: socket.socket) -> tuple[socket.socket, object]:
        nonlocal count
        count += 1
        raise OSError(number, "refused by the system")

    monkeypatch.setattr(loop, "sock_accept", fail)
    gate = Gate(asyncio.Protocol, Limits(), clock=loop.time)
    gate.open(bind("127.0.0.1", 0)[:1])
    for _ in range(20):
        await asyncio.sleep(0)
    await gate.close()
    return count


async def test_a_socket_that_cannot_accept_is_named_and_tried_again_after_a_pause(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Any error of accept is logged once and followed by a pause, so that it does not busy the event loop."""
    assert await failed_accepts(monkeypatch, errno.EMFILE) == 1
    assert [one.getMessage() for one in caplog.records] == [
        f"no connection can be accepted: [Errno {errno.EMFILE}] refused by the system"
    ]


async def test_a_client_that_leaves_before_it_is_accepted_delays_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """After a connection that was aborted before accept, the next is accepted at once; nothing is logged."""
    assert await failed_accepts(monkeypatch, errno.ECONNABORTED) > 1
    assert caplog.records == []
