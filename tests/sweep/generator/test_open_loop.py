"""The open loop: requests begin when they are due, however slow the server is."""

from __future__ import annotations

import asyncio
from time import perf_counter

from sparktop.model.load import EndReason, LoadMode, RequestStarted
from sparktop.sweep.generator.client import OpenLoopClient
from sparktop.sweep.generator.wire import OpenLoop
from sparktop.sweep.result.measure import collect
from sparktop.sweep.result.open_loop import due_values_s
from tests.sweep.conftest import InProcess
from tests.sweep.stream_server import Asked

FAST = OpenLoop("poisson", 40.0, None, 0.25, 1.0, 5.0, "seed")


def dues(starts: list[RequestStarted]) -> list[float]:
    return [start.due for start in starts if start.due is not None]


async def test_requests_begin_when_they_are_due(in_process: InProcess) -> None:
    """40 requests are measured; those of the warm-up before them are not."""
    loaded = await in_process.load(mode=LoadMode.OPEN, concurrency=512, open_loop=FAST)
    starts = [event for event in loaded.events if isinstance(event, RequestStarted)]
    assert len(dues(starts)) == 40
    assert len(starts) >= 50
    assert dues(starts)[-1] - dues(starts)[0] <= 1.0
    for start in starts:
        if start.due is not None:
            assert start.at >= start.due
    assert all(end.ok for end in loaded.ends[:50])


async def test_a_stall_is_shown_in_full_from_the_due_time(in_process: InProcess) -> None:
    """Every request that was due in a stall of 1 s waits for its end, however few are in flight at once."""
    stall: list[float] = []
    asked_count = 0

    async def behave(asked: Asked) -> None:
        nonlocal asked_count
        asked_count += 1
        if asked_count == 5:
            stall.extend((perf_counter(), perf_counter() + 1.0))
        if stall:
            await asyncio.sleep(max(0.0, stall[1] - perf_counter()))
        await asked.stream()

    arrivals = OpenLoop("constant", 20.0, None, 0.0, 1.5, 10.0, "seed")
    loaded = await in_process.load(behave, mode=LoadMode.OPEN, concurrency=2, open_loop=arrivals)
    measured = [one for one in collect(loaded.events) if one.due is not None]
    assert len(measured) == 30
    begin, end = stall
    stalled = [one for one in measured if one.due is not None and begin <= one.due < end]
    assert stalled
    waits = [value for _, value in due_values_s("ttft_due_ms", stalled)]
    assert all(wait >= end - one.due for one, wait in zip(stalled, waits, strict=True) if one.due is not None)
    # A clock that starts at the write would see the stall in these alone.
    assert sum(one.start < end for one in stalled) <= 2


async def test_what_is_not_answered_at_the_end_is_ended(in_process: InProcess) -> None:
    """After the tail requests end as cancelled, also those that were never sent."""

    async def behave(_: Asked) -> None:
        await asyncio.Event().wait()

    arrivals = OpenLoop("constant", 20.0, None, 0.0, 0.5, 0.3, "seed")
    loaded = await in_process.load(behave, mode=LoadMode.OPEN, concurrency=4, open_loop=arrivals)
    ends = {end.request_id: end.reason for end in loaded.ends}
    starts = [event for event in loaded.events if isinstance(event, RequestStarted)]
    assert len(dues(starts)) == 10
    assert all(ends[start.request_id] is EndReason.ABORT for start in starts)
    assert loaded.log.failed == 0


async def test_a_cancelled_open_loop_ends_at_once(in_process: InProcess) -> None:
    """A cancellation ends a run of ten minutes while its client waits for the next arrival."""
    arrivals = OpenLoop("poisson", 0.01, None, 0.0, 600.0, 600.0, "seed")

    async def cancel() -> None:
        client = in_process.client
        while not (isinstance(client, OpenLoopClient) and client._origin):
            await asyncio.sleep(0.01)
            client = in_process.client
        client.cancel()

    cancelling = asyncio.create_task(cancel())
    async with asyncio.timeout(60):
        await in_process.load(mode=LoadMode.OPEN, concurrency=512, open_loop=arrivals)
    await cancelling
