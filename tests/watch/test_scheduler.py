"""The poll scheduler and how often groups are polled, on a clock that a test moves."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.model.engine import EngineSample, LaneSample
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.targets import LONGEST_POLL_S
from sparktop.sources.source import PollResult
from sparktop.watch.scheduler import (
    LOADED_FOR_S,
    LoadCadence,
    PollGroup,
    affordable_hz,
)
from tests.sources.conftest import FakeClock


class ScriptedSource:
    """A source that notes when it was asked, and takes as long and answers as the test says."""

    def __init__(self, clock: FakeClock, name: str = "a", *, takes_s: float = 0.0) -> None:
        self.name = name
        self.takes_s = takes_s
        self.down = False
        self.fault: Exception | None = None
        self.asked: list[float] = []
        self.deadlines: list[float] = []
        self.closed = False
        self.at_once = 0
        self._clock = clock

    async def poll(self, deadline_s: float) -> PollResult:
        """Note the time, take as long as the test says, answer as it says."""
        assert self.at_once == 0, "a source must never overlap itself"
        self.asked.append(round(self._clock() - 1200.0, 6))
        self.deadlines.append(deadline_s)
        self.at_once += 1
        try:
            if self.takes_s:
                await self._clock.sleep(self.takes_s)
        finally:
            self.at_once -= 1
        if self.fault is not None:
            raise self.fault
        if self.down:
            return Failure(FailureKind.REFUSED, "nothing listens", self._clock())
        return EngineSample(self._clock(), "vllm", (LaneSample("0"),))

    async def close(self) -> None:
        """Note it."""
        self.closed = True


class Delivered:
    """Keeps what a group delivered."""

    def __init__(self) -> None:
        self.all: list[tuple[str, PollResult, float | None]] = []

    def __call__(self, name: str, reading: PollResult, took_ms: float | None) -> None:
        """Record one reading, as a group's `deliver`."""
        self.all.append((name, reading, took_ms))

    def kinds(self, name: str) -> list[str]:
        """Return what came from one source: a failure's kind, or "sample"."""
        return [
            reading.kind if isinstance(reading, Failure) else "sample"
            for source, reading, _ in self.all
            if source == name
        ]


@asynccontextmanager
async def running(group: PollGroup, clock: FakeClock) -> AsyncIterator[None]:
    task = asyncio.ensure_future(group.run())
    await clock.settle()
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def group_of(
    clock: FakeClock,
    *sources: ScriptedSource,
    interval_s: float = 1.0,
    deliver: Callable[[str, PollResult, float | None], None] | None = None,
    longest_s: float = LONGEST_POLL_S,
) -> PollGroup:
    return PollGroup(
        "group",
        sources,
        interval_s,
        deliver or Delivered(),
        clock=clock,
        sleep=clock.sleep,
        longest_s=longest_s,
    )


async def test_a_slow_source_never_delays_another(clock: FakeClock) -> None:
    """While one source hangs, the other one's samples come at every instant, at once."""
    slow, quick = ScriptedSource(clock, "slow", takes_s=60.0), ScriptedSource(clock, "quick")
    delivered = Delivered()
    async with running(group_of(clock, slow, quick, deliver=delivered), clock):
        await clock.advance(5.0)
    assert quick.asked == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert delivered.kinds("quick") == ["sample"] * 6
    assert delivered.kinds("slow") == []


async def test_a_down_source_is_retried_next_then_every_second_instant(clock: FakeClock) -> None:
    """The first failure is retried at the next instant, the ones after it at every second."""
    source = ScriptedSource(clock)
    source.down = True
    async with running(group_of(clock, source), clock):
        await clock.advance(7.0)
    assert source.asked == [0.0, 1.0, 3.0, 5.0, 7.0]


async def test_a_suspended_machine_makes_no_burst(clock: FakeClock) -> None:
    """After a jump of five hours a source is asked once, then at the instants that follow."""
    source = ScriptedSource(clock)
    async with running(group_of(clock, source), clock):
        await clock.advance(1.0)
        await clock.jump(5 * 3600 + 0.25)
        assert source.asked == [0.0, 1.0, 18001.25]
        await clock.advance(1.0)
    assert source.asked == [0.0, 1.0, 18001.25, 18002.0]


class SlowSource(ScriptedSource):
    """A source whose answers take time, and which keeps to its deadline."""

    async def poll(self, deadline_s: float) -> PollResult:
        """Answer after `takes_s`, or fail at the deadline."""
        whole, self.takes_s = self.takes_s, min(self.takes_s, deadline_s)
        try:
            reading = await super().poll(deadline_s)
        finally:
            self.takes_s = whole
        return reading if whole <= deadline_s else Failure(FailureKind.TIMEOUT, "too slow", self._clock())


@pytest.mark.parametrize("takes_s", [2.1, 9.5])
async def test_a_slow_source_is_read(clock: FakeClock, takes_s: float) -> None:
    """A page of up to 10 s is a sample from the first answer on; no poll before it is called a failure."""
    source, delivered = SlowSource(clock, takes_s=takes_s), Delivered()
    async with running(group_of(clock, source, deliver=delivered), clock):
        await clock.advance(60.0)
    assert set(delivered.kinds("a")) == {"sample"}
    assert source.deadlines[0] == 2.0
    assert max(source.deadlines) <= 10.0


async def test_a_programming_error_is_logged_once_and_is_a_failure(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """An exception inside a poll becomes an INTERNAL failure each time and one traceback in the log."""
    faulty, healthy = ScriptedSource(clock, "faulty"), ScriptedSource(clock, "healthy")
    faulty.fault = ZeroDivisionError("secret detail")
    delivered = Delivered()
    with caplog.at_level(logging.ERROR):
        async with running(group_of(clock, faulty, healthy, deliver=delivered), clock):
            await clock.advance(3.0)
    assert delivered.kinds("faulty") == [FailureKind.INTERNAL] * 3
    assert delivered.kinds("healthy") == ["sample"] * 4
    assert len(caplog.records) == 1
    assert caplog.records[0].exc_info is not None
    failure = delivered.all[0][1]
    assert isinstance(failure, Failure)
    assert failure.message == "a fault in sparktop itself (ZeroDivisionError): its traceback is in the log"


async def test_a_source_that_ignores_its_deadline_is_cut_off(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source that never returns is cancelled after deadline and grace, which counts as a timeout."""
    monkeypatch.setattr("sparktop.watch.scheduler._GRACE_S", 0.01)
    came = asyncio.Event()
    readings: list[PollResult] = []

    def deliver(name: str, reading: PollResult, took_ms: float | None) -> None:
        assert name == "a"
        assert took_ms is not None
        readings.append(reading)
        came.set()

    source = ScriptedSource(clock, takes_s=1e6)
    async with running(group_of(clock, source, deliver=deliver, longest_s=0.01), clock):
        await came.wait()
    assert isinstance(readings[0], Failure)
    assert readings[0].kind is FailureKind.TIMEOUT


async def test_the_polls_of_many_sources_are_spread_over_the_interval(clock: FakeClock) -> None:
    """Each of 100 sources has its own hundredth of every second; a slow one is skipped as among few."""
    sources = [ScriptedSource(clock, f"s{number:02}") for number in range(100)]
    sources[99].takes_s = 0.5
    sources[50].takes_s = 1.2
    group = group_of(clock, *sources)
    async with running(group, clock):
        await clock.advance(3.4)
    for number in (0, 1, 30):
        assert sources[number].asked == [round(second + number / 100, 6) for second in range(4)]
    assert sources[99].asked == [0.99, 1.99, 2.99]
    assert sources[50].asked == [0.5, 2.5]
    assert group.skipped["s50"] == 1


async def test_cancelling_closes_everything(clock: FakeClock) -> None:
    """Cancelling a group cancels the polls under way, closes every source and delivers nothing more."""
    hanging, idle = ScriptedSource(clock, "hanging", takes_s=60.0), ScriptedSource(clock, "idle")
    delivered = Delivered()
    before = asyncio.all_tasks()
    async with running(group_of(clock, hanging, idle, deliver=delivered), clock):
        await clock.advance(0.5)
        assert hanging.at_once == 1
    assert hanging.at_once == 0
    assert hanging.closed
    assert idle.closed
    assert delivered.kinds("hanging") == []
    assert asyncio.all_tasks() == before


@settings(max_examples=25, deadline=None)
@given(
    interval_s=st.floats(0.1, 7.0),
    steps=st.lists(st.floats(0.0, 20.0), min_size=1, max_size=8),
)
def test_no_instant_is_missed_or_taken_twice(interval_s: float, steps: list[float]) -> None:
    """However time passes in steps, there is one poll at once and one at each multiple of the interval."""

    async def check() -> None:
        clock = FakeClock()
        start = clock.now
        source = ScriptedSource(clock)
        async with running(group_of(clock, source, interval_s=interval_s), clock):
            for step in steps:
                await clock.advance(step)
        first = math.floor(start / interval_s) + 1
        instants = [(first + k) * interval_s - start for k in range(len(source.asked) - 1)]
        assert source.asked[0] == 0.0
        assert source.asked[1:] == pytest.approx(instants, abs=1e-5)
        due = math.floor((start + sum(steps)) / interval_s) - first + 1
        assert len(instants) == pytest.approx(due, abs=1)

    asyncio.run(check())


# A poll group with some sources polled several times an interval, on a clock that a test moves.


# How often a group is polled: only while it is judged and loaded, and within its budget.

PAIR = ("a", "b")


class Group:
    """Two servers that answer once a second, and the pace that they get."""

    def __init__(self) -> None:
        self.cadence = LoadCadence()
        self.at = 0.0

    def pass_time(self, seconds: float, *, answer_ms: float = 2.0) -> list[dict[str, int]]:
        """Deliver samples for `seconds` seconds; return the pace after each second."""
        paces = []
        for _ in range(round(seconds)):
            self.at += 1.0
            for name in PAIR:
                self.answer(name, 8.0, answer_ms)
            paces.append(self.cadence.decide([PAIR], self.at, 1.0))
        return paces

    def answer(self, name: str, load: float | None, answer_ms: float) -> None:
        """Deliver a sample."""
        lane = LaneSample("0", running=load, waiting=0.0)
        self.cadence.note(name, EngineSample(self.at, "vllm", (lane,), answer_ms=answer_ms))


def test_a_loaded_group_is_looked_at_four_times_a_second() -> None:
    """After some seconds of load both servers are quickened, and no sooner."""
    paces = Group().pass_time(LOADED_FOR_S + 2)
    assert paces[:3] == [{}, {}, {}]
    assert paces[-1] == {"a": 4, "b": 4}


@pytest.mark.parametrize(("answer_ms", "hz"), [(4.0, 4.0), (4.1, 2.0), (20.0, 2.0), (20.1, 0.0)])
def test_a_rate_must_be_affordable(answer_ms: float, hz: float) -> None:
    """4 Hz up to 4 ms an answer, 1.6 % of the server's time; 2 Hz up to 20 ms, 4 %; else as asked for."""
    assert affordable_hz(answer_ms) == hz
    paces = Group().pass_time(10, answer_ms=answer_ms)
    assert paces[-1] == ({"a": round(hz), "b": round(hz)} if hz else {})
