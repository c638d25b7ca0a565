"""Waiting for what has no event for tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

AMPLE_S = 300.0


async def until(holds: Callable[[], bool]) -> None:
    """Let the loop go on until a condition holds."""
    async with asyncio.timeout(AMPLE_S):
        while not holds():  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.005)
