"""Runs long computations in steps, so that keys and other sources never wait for 10,000 series.

Such a computation is a generator that yields wherever it may pause, and returns its result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from time import perf_counter
from typing import TypeVar

Result = TypeVar("Result")
Steps = Generator[None, None, Result]
"""A computation in steps."""

_STEP_S = 0.002
"""A key takes several turns of the event loop, and waits for a step at each."""


async def in_steps(work: Steps[Result]) -> Result:
    """Return the result of `work`; the event loop runs its other callbacks about every 2 ms."""
    try:
        while True:
            end = perf_counter() + _STEP_S
            while perf_counter() < end:
                next(work)
            await asyncio.sleep(0)
    except StopIteration as done:
        found: Result = done.value
        return found
