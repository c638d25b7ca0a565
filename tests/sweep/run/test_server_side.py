"""What servers and machines report during a sweep: rest, growth, restarts, and what is behind a target.

What the machines of a sweep are, in words.

What a level's balance says of a router: how full the backends were, and who got how many requests.

Which backend answered, and whether the order of choices looks like chance.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from sparktop.model.engine import EngineSample, LaneSample
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.load import concurrency_point
from sparktop.model.node import GpuReading, MemoryReading, NetworkReading, NodeIdentity, NodeSample
from sparktop.model.snapshot import BackendView, LimitKind, NodeView, Snapshot
from sparktop.model.targets import BackendTarget, NodeTarget, NodeThresholds, RouterTarget, Watch
from sparktop.model.yardsticks import PastSetup, PublishedRates, SteadyLoad, YardstickBasis
from sparktop.store import SourceKey, Store
from sparktop.sweep.generator.wire import WorkerTarget
from sparktop.sweep.plan.plan import Plan, SweepTarget, TargetKind
from sparktop.sweep.result.measure import RequestTrace
from sparktop.sweep.run.level import LevelRecord
from sparktop.sweep.run.preparation import (
    PreparedTarget,
    machines_words,
    unmeasured,
    with_late_yardsticks,
)
from sparktop.sweep.run.router_side import (
    BackendNames,
    routing_test,
)
from sparktop.sweep.run.server_side import (
    ServerLog,
    node_side,
    server_point,
    watched_backends,
    watched_nodes,
    watched_slots,
)
from tests.known import known

SOLO = SweepTarget("a", "http://10.0.0.1:8000", nodes=("n1",))


def sample(
    at: float, running: float | None = 0.0, tokens: float = 100.0, start: float | None = 1.0
) -> EngineSample:
    lane = LaneSample(
        "0",
        running=running,
        waiting=None if running is None else 0.0,
        generation_tokens=tokens,
        prompt_tokens=tokens / 2,
        finished={"stop": 3.0, "length": 4.0},
    )
    return EngineSample(at, "vllm", (lane,), start_time=start)


def record(target: SweepTarget = SOLO, backends: tuple[str, ...] = ("a",)) -> LevelRecord:
    plan = Plan((target,))
    prepared = PreparedTarget(target, WorkerTarget(target.url), unmeasured(target), backends=backends)
    return LevelRecord(plan, prepared, plan.level(target.name, concurrency_point(4)))


@pytest.mark.parametrize(
    ("later", "fell", "grown"),
    [
        (sample(9.0, tokens=160.0), False, 60.0),
        (sample(9.0, tokens=40.0), True, -60.0),
        (sample(9.0, tokens=160.0, start=5.0), True, 60.0),
    ],
)
def test_counters_that_go_back_are_a_restart(later: EngineSample, grown: float, *, fell: bool) -> None:
    """A smaller counter or a newer start time; batches of a level add up."""
    made = record()
    rest = {"a": server_point(sample(1.0))}
    made.add_growth(rest, rest, {"a": server_point(later)})
    assert (made.facts.fell, made.growth["a"].generation_tokens) == (fell, grown)
    rest = {"a": server_point(later)}
    made.add_growth(rest, rest, {"a": server_point(replace(later, at=10.0))})
    assert made.growth["a"].generation_tokens == grown
    assert made.growth["a"].finished == 0.0


@pytest.mark.parametrize(
    ("start", "served"), [(1.0, {"a": 4, "b": 2}), (9.0, {})], ids=["steady", "restarted"]
)
def test_who_served_a_level_is_unknown_after_a_restart(start: float, served: dict[str, int]) -> None:
    """A router that names no backend leaves it to the servers' counters, which begin anew at a restart."""
    made = record(SweepTarget("proxy", "http://10.0.0.9:4000", TargetKind.ROUTER), ("a", "b"))
    rest = {name: server_point(sample(1.0)) for name in ("a", "b")}
    first, second = (
        replace(rest[name], counters=replace(rest[name].counters, finished=7.0 + more), start_time=at)
        for name, more, at in (("a", 4.0, 1.0), ("b", 2.0, start))
    )
    made.add_growth(rest, rest, {"a": first, "b": second})
    assert made.result(ServerLog(), {}).served_by == served


def test_a_sample_of_a_sweep_has_no_impossible_figure() -> None:
    """What no server can count in a second is unknown; after a restart all begins anew."""
    log, key = ServerLog(), SourceKey.backend("a")
    seen = []
    for one in (sample(1.0), sample(2.0, 4e9, 2e12), sample(3.0, 1.0, 9e12, start=3.0)):
        log.accept(key, one)
        point = known(log.newest("a"))
        seen.append((point.running, point.counters.generation_tokens))
    assert seen == [(0.0, 100.0), (None, None), (1.0, 9e12)]


def test_a_level_in_which_the_server_mostly_rests_is_limited_by_its_client() -> None:
    """The time in which no user asks is a part of the level, the pause between two runs is not."""
    made, log = record(), ServerLog()
    begins = [(run, 100.0 * run + 14.0 * call) for run in range(2) for call in range(5)]
    made.traces = [RequestTrace(f"r{at}", at, run, arrivals=[(at + 2.5, 60)]) for run, at in begins]
    for second in range(160):
        works = any(at <= second <= at + 2.5 for _, at in begins)
        log.accept(SourceKey.backend("a"), sample(float(second), float(works), 40.0 * second))
    limit = known(made.result(log, {}).limited_by)
    assert (limit.kind, limit.reason) == ("client", "no request in 75 % of the time; none waits")


@pytest.mark.parametrize(("limit_mhz", "is_slow"), [(1000.0, False), (1500.0, True)])
def test_a_levels_machine_is_slow_by_the_users_limit(limit_mhz: float, *, is_slow: bool) -> None:
    """A GB10 at 1,200 MHz under load is slow where [alerts] slow_clock_mhz is 1,500."""
    log = ServerLog(thresholds=NodeThresholds(slow_clock_mhz=limit_mhz))
    gpu = GpuReading(0, "NVIDIA GB10", utilization_percent=96.0, sm_clock_mhz=1200, power_w=60.0)
    memory = MemoryReading(unified=True)
    for second in range(40):
        log.accept(SourceKey.node("n"), NodeSample(float(second), memory=memory, gpus=(gpu,)))
        log.accept(SourceKey.backend("a"), sample(float(second), 4.0, 40.0 * second))
    limits = log.limits({"a": ("n",)}, {}, [(0.0, 40.0)], None)
    assert [limit.kind is LimitKind.POWER for limit in limits.values()] == [is_slow]


def test_a_server_rests_once_nothing_runs_or_waits() -> None:
    """A server whose requests only wait does not; of an unknown number it is unknown."""
    point = server_point(sample(1.0))
    for load, idle in (((0.0, None), True), ((0.0, 2.0), False), ((1.0, 0.0), False), ((None, 0.0), None)):
        assert replace(point, running=load[0], waiting=load[1]).idle is idle


def test_a_machines_level_is_extremes_and_means() -> None:
    """The hottest GPU, all power, the mean clock, the worst reason; unknown stays unknown."""
    gpus = (
        GpuReading(0, temperature_c=60.0, power_w=40.0, sm_clock_mhz=2400, throttled_percent={"a": 1.0}),
        GpuReading(1, temperature_c=70.0, power_w=50.0, sm_clock_mhz=2000, throttled_percent={"b": 9.0}),
    )
    one = NodeSample(1.0, memory=MemoryReading(headroom_bytes=10), gpus=gpus)
    two = NodeSample(2.0, memory=MemoryReading(headroom_bytes=30), gpus=gpus[:1])
    side = node_side([one, two])
    assert (side.gpu_c_max, side.power_w_mean, side.sm_clock_mhz_mean) == (70.0, 65.0, 2300.0)
    assert (side.throttled_percent, side.headroom_min_bytes) == (5.0, 10)
    nothing = node_side([NodeSample(1.0)])
    assert set(nothing.model_dump().values()) == {None}


def test_who_is_behind_a_target_is_found_by_address() -> None:
    """A server under whatever name, a router's backends, and the machines of both."""
    watch = Watch(
        nodes=(NodeTarget("n1", via="agent", url="http://10.0.0.1:9750"),),
        backends=(
            BackendTarget("one", SOLO.url, nodes=("n1",)),
            BackendTarget("two", "http://10.0.0.2:8000"),
        ),
        routers=(RouterTarget("proxy", "http://10.0.0.9:4000", backends=("one", "two")),),
    )
    snapshot = Store(watch).snapshot()
    assert watched_backends(SOLO, snapshot) == ("one",)
    assert watched_nodes(SOLO, snapshot) == ("n1",)
    proxy = SweepTarget("p", "http://10.0.0.9:4000", TargetKind.ROUTER)
    assert watched_backends(proxy, snapshot) == ("one", "two")
    named = replace(proxy, backends={"x": "http://10.0.0.2:8000", "gone": "http://10.0.0.3:8000"})
    assert watched_backends(named, snapshot) == ("two",)
    assert watched_backends(replace(SOLO, name="q", url="http://q:1"), snapshot) == ()
    of_one = replace(snapshot, backends=(replace(snapshot.backends[0], slots=8), snapshot.backends[1]))
    assert watched_slots(Plan((SOLO, proxy)), of_one) == {"a": 8}, "those of two are unknown"


def test_a_log_keeps_the_newest_and_a_silence_ends_with_an_answer() -> None:
    """A server's newest sample stays however old it is; a failure lasts since the first in a row."""
    log, key = ServerLog(), SourceKey.backend("a")
    for at in (1.0, 2.0):
        log.accept(key, sample(at))
    log.forget(9.0)
    assert [point.at for point in log.servers("a", [(0.0, 9.0)])] == [2.0]
    for at in (3.0, 4.0):
        log.accept(key, Failure(FailureKind.REFUSED, "nothing listens", at))
    assert known(log.silence("a"))[0] == 3.0
    log.accept(key, sample(5.0))
    assert log.silence("a") is None


def test_a_machine_is_its_product_its_gpus_and_its_driver() -> None:
    """Equal GPUs are counted; no words on an unknown machine; of several also the RDMA ports that are up."""
    spark = NodeIdentity(product="NVIDIA DGX Spark", driver="580.95")
    gpus = tuple(GpuReading(index, name="NVIDIA H100") for index in range(8))
    kinds = (("r0", "rdma", True), ("r1", "rdma", True), ("r2", "rdma", False), ("e", "ethernet", True))
    ports = tuple(NetworkReading(*kind, link_bits_per_s=200e9) for kind in kinds)
    sample_of_spark = NodeSample(1.0, gpus=(GpuReading(0, name="NVIDIA GB10"),), network=ports)
    nodes = (
        NodeView("a", "ssh", sample_of_spark, spark),
        NodeView("b", "ssh", NodeSample(1.0, gpus=gpus)),
        NodeView("c", "ssh"),
        NodeView("other", "ssh", identity=spark),
    )
    snapshot = Snapshot(datetime(2026, 3, 4, tzinfo=UTC), 0.0, 1.0, 2.0, nodes=nodes)
    assert machines_words(("a", "b", "c"), snapshot) == {
        "a": "NVIDIA DGX Spark, NVIDIA GB10, driver 580.95, 2 RDMA ports of 200 Gb/s",
        "b": "8 × NVIDIA H100",
    }
    assert machines_words(("a",), snapshot) == {"a": "NVIDIA DGX Spark, NVIDIA GB10, driver 580.95"}


def test_waves_are_bunched() -> None:
    """Eight requests to one backend, then eight to the other, are called bunched."""
    found = routing_test(("a" * 8 + "b" * 8) * 3)
    assert found["word"] == "bunched"
    assert found["totals_p"] == pytest.approx(1.0)
    assert found["sentence"] == (
        "requests in a row often went to the same server: a 24, b 24 in all; "
        "changes of the server: 5 (random order: about 24)"
    )


NAMES = BackendNames(
    router_url="http://10.0.0.9:4000",
    backends={"spark-a": "http://10.0.0.1:8000", "spark-b": "http://10.0.0.9:8001"},
    deployments={"id-1": "spark-a"},
)


@pytest.mark.parametrize(
    ("told", "name"),
    [
        ("id-1", "spark-a"),
        ("spark-b", "spark-b"),
        ("http://10.0.0.1:8000/v1", "spark-a"),
        ("http://localhost:8001/v1", "spark-b"),
        ("somebody\x1b[31m", "somebody [31m"),
        (None, None),
    ],
)
def test_a_routers_word_becomes_a_backends_name(told: str | None, name: str | None) -> None:
    """It is named by its id, its name, or its address as the router sees it; else its word is cleaned."""
    assert NAMES.name(told) == name


@pytest.mark.parametrize("sequence", ["", "aaaaaaaaaaaaaaaa", "abab"])
def test_too_little_is_unknown(sequence: str) -> None:
    """No request, one backend or a handful of requests show no order."""
    found = routing_test(sequence)
    assert (found["word"], found["runs_p"]) == ("unknown", None)


def test_what_files_hold_counts_though_it_was_read_after_the_preparation() -> None:
    """Published rates, and bests of before it: the first target is prepared while files are still read."""
    bests = tuple(SteadyLoad(at, 1.0, 1.0, 18.0, 55.0) for at in (90.0, 110.0))
    setup = PastSetup("10.0.0.1:8000", "vllm", "m", bests=bests)
    rates = PublishedRates("table", "m", "vllm", "GB10", levels=((1, 60.0),))
    prepared = PreparedTarget(SOLO, WorkerTarget(SOLO.url, "m"), unmeasured(SOLO), prepared_at=100.0)
    basis = YardstickBasis(setups=(setup,), published=(rates,))
    late = BackendView("a", SOLO.url, "g", yardstick_basis=basis)
    for views, published, kept in (((late,), (rates,), bests[:1]), ((), (), ())):
        snapshot = Snapshot(datetime(2026, 3, 4, tzinfo=UTC), 0.0, 1.0, 2.0, backends=views)
        basis = with_late_yardsticks(prepared, snapshot).yardstick_basis
        assert basis.published == published
        assert [best for setup in basis.setups for best in setup.bests] == list(kept)
