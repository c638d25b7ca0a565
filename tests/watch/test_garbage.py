"""With many sources, garbage is collected by the clock, and seldom between."""

from __future__ import annotations

import asyncio
import gc

import pytest

from sparktop.model.targets import BackendTarget, Watch
from sparktop.store import Store
from sparktop.watch.monitor import COLLECT_EVERY_S, MANY, maintain_memory


@pytest.mark.parametrize("count", [2, MANY])
async def test_garbage_of_many_sources_is_collected_by_the_clock(count: int) -> None:
    """With many sources collections are seldom, but one takes place each minute; with few all is as usual."""
    store = Store(Watch(backends=tuple(BackendTarget(f"s{n}", f"http://s{n}") for n in range(count))))
    usual = gc.get_threshold()
    waits: list[float] = []
    seldom: list[bool] = []
    collected: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "stop":
            collected.append(info["generation"])

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        seldom.append(gc.get_threshold()[0] > usual[0])
        if len(waits) > 15:
            raise asyncio.CancelledError

    gc.callbacks.append(note)
    try:
        with pytest.raises(asyncio.CancelledError):
            await maintain_memory(store, sleep)
    finally:
        gc.callbacks.remove(note)
    assert waits == 16 * [COLLECT_EVERY_S]
    assert seldom == 16 * [count == MANY]
    if count == MANY:
        assert collected == [*14 * [1], 2]
    assert gc.get_threshold() == usual
