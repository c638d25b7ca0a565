"""This machine as a source: a slow or hanging driver costs a sample, never the loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from sparktop.model.failure import FailureKind
from sparktop.net.client import AT_ONCE_BYTES, read_beside
from sparktop.sources.local import LocalSource
from sparktop.sources.source import Source
from tests.hardware.fake_driver import FakeDriver, gb10
from tests.known import known
from tests.sources.conftest import failure_of, sample_of

AMPLE_S = 100.0
SHORT_S = 0.02
"""The deadline where the test is that it passes: the read hangs for as long as the test wants."""


class SlowDriver(FakeDriver):
    """A driver whose temperature call takes until a test lets it go."""

    def __init__(self) -> None:
        super().__init__(gb10())
        self.free = threading.Event()
        self.free.set()
        self.asked = threading.Event()
        self.threads: set[int] = set()

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:  # noqa: N802 - the library's name
        """Answer when allowed."""
        del handle, sensor
        self.threads.add(threading.get_ident())
        self.asked.set()
        if not self.free.wait(AMPLE_S):
            raise TimeoutError
        return 50


@pytest.fixture
def driver() -> SlowDriver:
    return SlowDriver()


@pytest.fixture
async def source(tmp_path: Path, driver: SlowDriver) -> AsyncIterator[LocalSource]:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 1024 kB\nMemAvailable: 512 kB\n")
    local = LocalSource("spark", root=tmp_path, nvml=driver)
    yield local
    driver.free.set()
    await local.close()


async def wait_for(blocking: Callable[[float], object]) -> None:
    """Wait in another thread, so that the loop runs meanwhile."""
    await asyncio.to_thread(blocking, AMPLE_S)


async def test_a_poll_gives_a_sample_and_then_an_identity(source: LocalSource) -> None:
    """Who the machine is comes with the first sample, not before."""
    as_source: Source = source
    before = source.identity
    sample = await sample_of(as_source)
    assert (sample.memory.total_bytes, sample.gpus[0].temperature_c) == (1024 * 1024, 50.0)
    assert (as_source.name, before) == ("spark", None)
    assert known(source.identity).driver == "580.126.09"


async def test_a_hung_read_is_a_timeout_and_piles_nothing_up(source: LocalSource, driver: SlowDriver) -> None:
    """Each poll says so, no further read begins, and the first poll after it gives a sample again."""
    await source.poll(AMPLE_S)
    driver.free.clear()
    driver.asked.clear()
    threads = threading.active_count()
    late = await failure_of(source, SHORT_S)
    assert (late.kind, late.message) == (
        FailureKind.TIMEOUT,
        "reading this machine took longer than 0.02 s",
    )
    for _ in range(5):
        hung = await failure_of(source)
        assert hung.kind == FailureKind.TIMEOUT
        assert hung.message.startswith("reading this machine has hung for ")
    assert threading.active_count() == threads
    running = known(source._running)
    driver.free.set()
    await wait_for(running.result)
    await sample_of(source)
    assert len(driver.threads) == 1


# Long answers are read in a thread, one after the other, and short ones at once.


async def test_a_long_answer_is_read_in_a_thread() -> None:
    """The event loop goes on while a long answer is read; a short one needs no thread."""
    assert await read_beside(threading.get_ident, AT_ONCE_BYTES) == threading.get_ident()
    went_on = threading.Event()
    asyncio.get_running_loop().call_soon(went_on.set)
    assert await read_beside(lambda: went_on.wait(20), AT_ONCE_BYTES + 1)
