"""Time limits in a task that ends: as Python 3.11.3 has them, on every Python."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress

import pytest

from sparktop import stopping

Make = Callable[[float], AbstractAsyncContextManager[object]]


@pytest.fixture(params=[stopping.timeout, stopping._Timeout], ids=["in use", "stand-in"])
def limit(request: pytest.FixtureRequest) -> Make:
    made: Make = request.param
    return made


async def test_each_step_of_a_clean_up_has_its_limit(limit: Make) -> None:
    """A task that was cancelled goes on after a time limit, so that it can end what it started."""
    steps: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            for step in ("ask", "terminate", "kill"):
                with suppress(TimeoutError):
                    async with limit(0.01):
                        await asyncio.Event().wait()
                steps.append(step)

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert steps == ["ask", "terminate", "kill"]


async def test_what_ends_in_time_is_left_alone(limit: Make) -> None:
    """Neither a result nor an error of the content changes, nor a cancellation from outside."""
    async with limit(5.0):
        await asyncio.sleep(0)
    with pytest.raises(KeyError):
        async with limit(5.0):
            raise KeyError

    async def wait() -> None:
        async with limit(5.0):
            await asyncio.Event().wait()

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
