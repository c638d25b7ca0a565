"""Long answers are read in a thread, one after the other, and short ones at once."""

from __future__ import annotations

import asyncio
import threading

import pytest

from sparktop.sources.source import AT_ONCE_BYTES, read_beside


async def test_a_long_answer_is_read_in_a_thread() -> None:
    """The event loop goes on while a long answer is read; a short one needs no thread."""
    assert await read_beside(threading.get_ident, AT_ONCE_BYTES) == threading.get_ident()
    went_on = threading.Event()
    asyncio.get_running_loop().call_soon(went_on.set)
    assert await read_beside(lambda: went_on.wait(20), AT_ONCE_BYTES + 1)


async def test_an_error_of_the_reader_reaches_the_caller() -> None:
    """What the reader raises is raised where the answer was awaited."""

    def fail() -> None:
        raise ValueError("odd")

    for size in (1, AT_ONCE_BYTES + 1):
        with pytest.raises(ValueError, match="odd"):
            await read_beside(fail, size)


async def test_answers_are_read_one_after_the_other() -> None:
    """A cancelled caller waits for nothing; the next answer is read once the one before is done."""
    began, may_end = threading.Event(), threading.Event()
    order: list[int] = []

    def first() -> None:
        began.set()
        may_end.wait(20)
        order.append(1)

    size = AT_ONCE_BYTES + 1
    task = asyncio.ensure_future(read_beside(first, size))
    await asyncio.to_thread(began.wait, 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    second = asyncio.ensure_future(read_beside(lambda: order.append(2), size))
    unwanted = asyncio.ensure_future(read_beside(lambda: order.append(3), size))
    await asyncio.sleep(0)
    unwanted.cancel()
    with pytest.raises(asyncio.CancelledError):
        await unwanted
    await asyncio.sleep(0)  # the thread's future is cancelled by a callback
    may_end.set()
    await second
    await read_beside(lambda: order.append(4), size)
    assert order == [1, 2, 4]
