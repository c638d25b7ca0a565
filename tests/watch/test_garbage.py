"""With many sources, what survives a full collection of garbage is left out of the next ones."""

from __future__ import annotations

import asyncio
import gc

import pytest

from sparktop.model.targets import BackendTarget, Watch
from sparktop.store import Store
from sparktop.watch.own_cost import COLLECT_ALL_EVERY_S, MANY, keep_pauses_short


@pytest.mark.parametrize("count", [2, MANY])
async def test_survivors_are_left_out_until_everything_is_due(count: int) -> None:
    """A full collection leaves its survivors out, and later visits them again; not with few sources."""
    store = Store(Watch(backends=tuple(BackendTarget(f"s{n}", f"http://s{n}") for n in range(count))))
    waits: list[float] = []
    frozen: list[int] = []
    usual, rare = gc.get_threshold(), []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 1:
            gc.unfreeze()
            gc.collect()
        frozen.append(gc.get_freeze_count())
        rare.append(gc.get_threshold()[2] > usual[2])
        if len(waits) == 2:
            raise asyncio.CancelledError

    before = list(gc.callbacks)
    with pytest.raises(asyncio.CancelledError):
        await keep_pauses_short(store, sleep)
    assert waits == [COLLECT_ALL_EVERY_S, COLLECT_ALL_EVERY_S]
    assert (frozen[0] > 1000) is (count == MANY)
    assert frozen[1] == 0
    assert gc.callbacks == before
    assert rare == 2 * [count == MANY]
    assert gc.get_threshold() == usual
