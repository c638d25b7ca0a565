"""A poll group with some sources polled several times an interval, on a clock that a test moves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from sparktop.model.engine import EngineSample, LaneSample
from sparktop.model.failure import Failure, FailureKind
from sparktop.sources.source import Reading
from sparktop.watch.scheduler import PollGroup
from tests.sources.conftest import FakeClock

BEGIN = 1200.0


class NotingSource:
    """Notes when it was asked; answers at once, unless it is down or hangs."""

    def __init__(self, clock: FakeClock, name: str, *, takes_s: float = 0.0) -> None:
        self.name = name
        self.asked: list[float] = []
        self.down = False
        self.takes_s = takes_s
        self._clock = clock

    async def poll(self, deadline_s: float) -> Reading:  # noqa: ARG002 - the protocol's
        """Note the time and answer."""
        self.asked.append(round(self._clock() - BEGIN, 6))
        if self.takes_s:
            await self._clock.sleep(self.takes_s)
        if self.down:
            return Failure(FailureKind.REFUSED, "nothing listens", self._clock())
        return EngineSample(self._clock(), "vllm", (LaneSample("0"),))

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""


@asynccontextmanager
async def running(clock: FakeClock, *sources: NotingSource) -> AsyncIterator[PollGroup]:
    group = PollGroup(
        "group", sources, 1.0, lambda *_: None, clock=clock, sleep=clock.sleep, jitter=lambda: 0.0
    )
    task = asyncio.ensure_future(group.run())
    await clock.settle()
    try:
        yield group
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_quickened_sources_share_instants_with_the_others(clock: FakeClock) -> None:
    """At 4 Hz and 2 Hz beside 1 Hz: equal parts of the interval, all together at its begin."""
    a, b, c = (NotingSource(clock, name) for name in "abc")
    async with running(clock, a, b, c) as group:
        await clock.advance(1.0)
        group.quicken({"a": 4, "b": 2, "stranger": 8})
        assert group.quickened == {"a": 4, "b": 2}
        await clock.advance(2.0)
    assert a.asked == [0.0, 1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 2.75, 3.0]
    assert b.asked == [0.0, 1.0, 1.5, 2.0, 2.5, 3.0]
    assert c.asked == [0.0, 1.0, 2.0, 3.0]
    assert group.interval_s == 1.0


@pytest.mark.parametrize("at", [0.0, 0.1, 0.25, 0.6, 0.75, 0.9])
async def test_changing_the_pace_never_loses_or_repeats_an_instant(clock: FakeClock, at: float) -> None:
    """Whenever the pace rises and falls, each whole second is asked once, on the second."""
    a, b = NotingSource(clock, "a"), NotingSource(clock, "b")
    async with running(clock, a, b) as group:
        await clock.advance(2.0 + at)
        group.quicken({"a": 4})
        await clock.advance(3.0)
        group.quicken({})
        await clock.advance(3.0 - at)
    assert b.asked == [float(second) for second in range(9)]
    assert [one for one in a.asked if one.is_integer()] == b.asked
    assert len(set(a.asked)) == len(a.asked)
    assert group.quickened == {}


async def test_a_source_that_fails_is_asked_no_more_often_than_asked_for(clock: FakeClock) -> None:
    """A down server is retried at the next whole interval, then every second one, at 4 Hz too."""
    a, b = NotingSource(clock, "a"), NotingSource(clock, "b")
    async with running(clock, a, b) as group:
        group.quicken({"a": 4, "b": 4})
        await clock.advance(0.25)
        a.down = True
        await clock.advance(5.75)
        assert a.asked == [0.0, 0.25, 0.5, 1.0, 3.0, 5.0]
        a.down = False
        await clock.advance(1.5)
    assert a.asked[-3:] == [7.0, 7.25, 7.5]
    assert len(b.asked) == 31
