"""Memory that falls steeply is read several times a second, and no longer than that."""

from __future__ import annotations

import time
from collections.abc import Sequence

from sparktop.model.node import MemoryReading, MemorySample, NodeSample
from sparktop.model.targets import NodeTarget, Watch
from sparktop.store import SourceKey
from sparktop.watch.monitor import EVERY_S, REMOTE_S, WINDOW_S, MemoryFall, MemoryWatch, Monitor
from tests.watch.monitor_fakes import FakeSource, FakeWays, Sleeper, WatchedStore

GIB = 1 << 30


def memory(left_gib: float) -> MemoryReading:
    """Return a reading with this much headroom."""
    return MemoryReading(total_bytes=128 * GIB, headroom_bytes=int(left_gib * GIB))


def fall(*points: tuple[float, float]) -> MemoryFall:
    """Return the state after samples of (seconds, GiB left)."""
    found = MemoryFall()
    for at, left in points:
        found.add(at, memory(left))
    return found


def test_steep_is_what_uses_up_all_within_a_minute() -> None:
    """Neither one sample, nor a slow fall, nor a rise; a fall that has ended counts for `WINDOW_S` only."""
    assert not fall((0, 10)).is_steep
    assert fall((0, 62), (2, 60)).is_steep
    assert not fall((0, 63), (2, 61.2)).is_steep
    assert not fall((0, 1), (2, 1.01)).is_steep
    assert fall((0, 60), (2, 40), (4, 39.9)).is_steep
    assert not fall((0, 60), (2, 40), (4, 40), (2 + WINDOW_S, 40), (4 + WINDOW_S, 40)).is_steep
    assert fall((0, 1), (2, 0)).is_steep


class FallingSource(FakeSource):
    """A machine whose quick readings fall by 5 GiB each, down to a level."""

    def __init__(self, levels: Sequence[float]) -> None:
        """Read these levels in turn, then repeat the last."""
        super().__init__("n", lambda: NodeSample(0.0), None)
        self.levels, self.at = list(levels), 10.0

    async def read_memory(self, last: MemoryReading) -> MemorySample:  # noqa: ARG002 - the protocol's
        """Read the next level, a second later."""
        self.at += 1.0
        return MemorySample(self.at, memory(self.levels.pop(0) if len(self.levels) > 1 else self.levels[0]))


async def test_a_local_node_is_read_until_the_fall_ends() -> None:
    """One reading after another while it falls; the end is reached soon after."""
    found: list[MemorySample] = []
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    watch = MemoryWatch(lambda _, one: found.append(one), sleep)
    source = FallingSource([30, 20, 10, 5])
    assert not watch.add("n", source, NodeSample(8.0, memory=memory(60)))
    assert not watch.add("n", source, NodeSample(10.0, memory=memory(40)))
    (task,) = watch._reading.values()
    await task
    assert not watch.falling
    assert [one.memory.headroom_bytes for one in found[:4]] == [level * GIB for level in (30, 20, 10, 5)]
    assert 5 < len(found) < 15
    assert set(slept) == {EVERY_S}
    await watch.stop()


async def test_other_nodes_are_polled_faster_while_memory_falls() -> None:
    """The source requests more samples from the agent, the group polls more often, and both end again."""
    left = [100.0]
    ways = FakeWays(node_reading=lambda: NodeSample(time.monotonic(), memory=memory(left[0])))
    target = NodeTarget("n", via="agent", url="http://n:9750")
    watch = Watch(nodes=(target,), interval_s=1.0)
    store = WatchedStore(watch)
    monitor = Monitor(watch, store, ways=ways, sleep=Sleeper())
    await monitor.start()
    await store.until(lambda: store.snapshot().nodes[0].ok)
    source, key = ways.made[0], SourceKey.node("n")
    assert source.interval_s == 2.0
    now = time.monotonic()
    for step, level in enumerate((80, 60, 40)):
        monitor._deliver(key.kind, "n", NodeSample(now + 2 + 2 * step, memory=memory(level)), 1.0)
    (group,) = monitor._node_groups
    assert (source.interval_s, group.quickened) == (REMOTE_S, {"n": 8})
    for step in range(5):
        monitor._deliver(key.kind, "n", NodeSample(now + 8 + 2 * step, memory=memory(40)), 1.0)
    assert (source.interval_s, group.quickened) == (2.0, {})
    await monitor.stop()
