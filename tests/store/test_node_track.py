"""What the store makes of a node's samples: histories, late samples, throttling, headroom, speed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import CpuReading, GpuReading, MemoryReading, NetworkReading, NodeSample
from sparktop.model.series import Series
from sparktop.model.snapshot import NodeView
from sparktop.model.targets import NodeTarget, NodeThresholds, Watch
from sparktop.store import SourceKey
from sparktop.store.node import NodeTrack

World: TypeAlias = Any  # the class lives in conftest.py, which tests cannot import
MakeWorld = Callable[..., World]

GIB = 2**30
NODE = SourceKey.node("n")


@pytest.fixture
def node(make_world: MakeWorld) -> World:
    return make_world(Watch(nodes=(NodeTarget("n"),)))


def take(world: World, sample: NodeSample | Failure) -> NodeView:
    world.at = max(float(world.at), sample.at)
    world.store.accept(NODE, sample)
    view: NodeView = world.snapshot().nodes[0]
    return view


def look(at: float, *missed: float) -> NodeSample:
    """Return a sample whose processor use is its time, with older samples in `missed`."""
    return NodeSample(at, cpu=CpuReading(at), missed=tuple(look(one) for one in missed))


def lost(at: float) -> Failure:
    return Failure(FailureKind.TIMEOUT, "slow", at)


def known(series: Series) -> list[tuple[float, float | None]]:
    return list(series)


def test_missed_samples_are_in_the_history_in_order(node: World) -> None:
    """What an agent kept while it could not be reached comes back without a gap; the newest is shown."""
    take(node, look(1000))
    take(node, look(1001))
    for at in (1002.5, 1004.5):
        take(node, lost(at))
    view = take(node, look(1006, 1002, 1003, 1004, 1005))
    assert known(view.history.cpu_percent) == [(float(at), float(at)) for at in range(1000, 1007)]
    assert view.sample == look(1006)
    assert (view.ok, view.age_s) == (True, 0)


@given(
    st.lists(st.tuples(st.integers(1000, 1060), st.sets(st.integers(1000, 1060), max_size=6)), max_size=12)
)
@settings(max_examples=30, deadline=None)
def test_whatever_comes_when_the_history_is_in_order(replies: list[tuple[int, set[int]]]) -> None:
    """Times ascend, each sample's value stands at its time, and the one shown is the newest of all."""
    track, seen = NodeTrack(NodeTarget("n"), NodeThresholds()), set[int]()
    for at, missed in replies:
        track.accept_sample(look(at, *sorted(missed)), None, 2.0)
        seen |= {at, *missed}
        assert track.view.sample is not None
        assert track.view.sample.at == max(seen)
        assert known(track.view.history.cpu_percent) == [(at, at) for at in sorted(seen)]


def test_rdma_is_no_part_of_the_network(node: World) -> None:
    """Wired and wireless add up, RDMA by itself; bridges, loopback and links that are down count nowhere."""
    links = (
        ("eth0", "ethernet", True, 1.0),
        ("wlan0", "wifi", None, 2.0),
        ("eth1", "ethernet", False, 40.0),
        ("docker0", "other", True, 80.0),
        ("roce0", "rdma", True, 100.0),
        ("roce1", "rdma", True, 200.0),
        ("roce2", "rdma", False, 4000.0),
    )
    network = tuple(NetworkReading(name, kind, up, rate, 2 * rate) for name, kind, up, rate in links)
    history = take(node, NodeSample(1000, network=network)).history
    assert (history.rx_bytes_per_s.last, history.tx_bytes_per_s.last) == (3, 6)
    assert (history.rdma_rx_bytes_per_s.last, history.rdma_tx_bytes_per_s.last) == (300, 600)
    history = take(node, NodeSample(1002, network=network[3:4])).history
    assert (history.rx_bytes_per_s.last, history.rdma_rx_bytes_per_s.last) == (None, None)


def hot(at: float, percent: float | None, *missed: NodeSample) -> NodeSample:
    gpu = GpuReading(0, throttled_percent={"software thermal": percent}, utilization_percent=90.0)
    return NodeSample(at, gpus=(gpu,), missed=missed)


def test_throttling_is_weighed_by_time_and_gaps_have_none(node: World) -> None:
    """The first sample, and the first one after a failure, cover no time; missed samples do."""
    assert take(node, hot(1000, 100.0)).throttled_percent == {}
    take(node, hot(1010, 30.0))
    view = take(node, hot(1012, 90.0))
    assert view.throttled_percent == pytest.approx({"software thermal": (30 * 10 + 90 * 2) / 12})
    take(node, lost(1014))
    view = take(node, hot(1020, 100.0))
    assert view.throttled_percent == pytest.approx({"software thermal": 40})
    take(node, lost(1022))
    view = take(node, hot(1026, 0.0, hot(1022, 0.0), hot(1024, 0.0)))
    assert view.throttled_percent == pytest.approx({"software thermal": 480 / 18})


def memory(at: float, headroom_gib: float, *, unified: bool = True) -> NodeSample:
    return NodeSample(
        at,
        memory=MemoryReading(
            unified=unified, total_bytes=100 * GIB, headroom_bytes=round(headroom_gib * GIB)
        ),
    )


def test_headroom_tells_when_it_ends(node: World) -> None:
    """A GiB every ten seconds from 40 reaches 8 in 320 s, of which 120 have passed; a dead node has none."""
    for second in range(0, 121, 2):
        view = take(node, memory(1000 + second, 40 - second / 10))
    assert view.headroom.slope_bytes_per_s == pytest.approx(-GIB / 10, rel=0.01)
    assert view.headroom.until_limit_s == pytest.approx(200, rel=0.02)
    assert view.headroom.limit_bytes == 8 * GIB
    for second in (122, 124, 126):
        view = take(node, lost(1000 + second))
    assert (view.headroom.slope_bytes_per_s, view.headroom.until_limit_s) == (None, None)


def slow(at: float) -> NodeSample:
    gpu = GpuReading(0, "NVIDIA GB10", utilization_percent=95.0, sm_clock_mhz=611, power_w=16.0)
    return NodeSample(at, gpus=(gpu,))
