"""Events: alerts that begin and end, what flaps, states that last, processes that end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sparktop.analysis.summary import verdict
from sparktop.model.engine import EngineIdentity, EngineSample, LaneSample
from sparktop.model.event import Event, Phase, Progress, Severity
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.instant import Instant
from sparktop.model.node import (
    OOM,
    XID,
    GpuProcess,
    GpuReading,
    KernelLine,
    KernelLog,
    LastBoot,
    MemoryReading,
    NodeIdentity,
    NodeSample,
    Workload,
    Workloads,
)
from sparktop.model.router import Deployment, RouterSample
from sparktop.model.targets import BackendTarget, NodeTarget, RouterTarget, Watch
from sparktop.store import SourceKey
from sparktop.store.event_log import EVENTS_KEPT, EventLog
from tests.known import known
from tests.store.conftest import EPOCH, World

GIB = 2**30


def machine(at: float, gib: float, heat: float = 61.0) -> NodeSample:
    memory = MemoryReading(unified=True, headroom_bytes=round(gib * GIB), total_bytes=128 * GIB)
    return NodeSample(at, memory=memory, gpus=(GpuReading(0, temperature_c=heat, power_w=35.0),))


def of_node() -> World:
    return World(Watch(nodes=(NodeTarget("n"),)))


def phases(world: World) -> list[tuple[str | None, Phase | None]]:
    return [(event.kind, event.phase) for event in world.snapshot().events]


def test_an_alert_is_an_event_when_it_begins_and_when_it_ends(world: World) -> None:
    """Both have the measured value, the limit and the window; the end has the duration."""
    heard: list[Event] = []
    world.store.listen_events(heard.append)
    for at, percent in ((1000, 50.0), (1010, 99.0), (1070, 97.0), (1130, 90.0)):
        world.lane(at, kv_cache_percent=percent)
    assert phases(world) == [("kv-full", Phase.BEGIN), ("kv-full", Phase.END)]
    begun, ended = heard
    assert begun.values == {
        "kv_cache_percent": 99.0,
        "limit_kv_cache_percent": 98.0,
        "clears_below_percent": 95.0,
        "window_s": 0.0,
    }
    assert (begun.about, begun.at_s, begun.severity) == ("backend:b:kv-full", 1010, Severity.WARNING)
    assert (ended.duration_s, ended.severity, ended.importance) == (120.0, Severity.INFO, Severity.WARNING)
    assert ended.message == 'alert "KV cache full" ended after 2 min'


def test_a_warning_that_becomes_critical_is_announced_once() -> None:
    """Back and forth between warning and critical is one alert: it becomes worse once, and ends once."""
    world = of_node()
    for step, gib in enumerate((20, 11, 7, 9, 7, 9, 7, 20)):
        world.see(machine(1000 + 10 * step, gib))
    assert [(event.severity, event.phase) for event in world.snapshot().events] == [
        (Severity.WARNING, Phase.BEGIN),
        (Severity.CRITICAL, Phase.WORSE),
        (Severity.INFO, Phase.END),
    ]
    begun, worse, ended = world.snapshot().events
    assert (begun.values["limit_gib"], begun.values["headroom_gib"]) == (12.0, 11.0)
    assert (worse.values["limit_gib"], worse.values["headroom_gib"]) == (8.0, 7.0)
    assert (ended.importance, ended.duration_s) == (Severity.CRITICAL, 60.0)
    assert worse.message == "now critical: 7.0 GiB of memory left"


def test_what_is_not_known_any_more_ends_too() -> None:
    """An alert of a machine that went away ends with the reason, so that every beginning has an end."""
    world = of_node()
    world.see(machine(1000, 11))
    for at in (1002, 1004, 1006):
        world.see(Failure(FailureKind.TIMEOUT, "no answer", at))
    _, dropped, down = world.snapshot().events
    assert dropped.message == "alert dropped after 6 s: low memory, unknown now (it does not answer)"
    assert (down.message, down.values["failures"]) == ("no answer", 3)
    assert (down.values["limit_failures"], down.values["window_s"]) == (3, 4)


# The event log: what is one line, what is announced, and that only monotonic time counts.

DOWN = "backend:b:unreachable"


class Told:
    """A log with everything that it announced."""

    def __init__(self) -> None:
        self.log = EventLog()
        self.announced: list[Event] = []
        self.end = self.log.listen(self.announced.append)

    def begin(self, at: float, about: str = DOWN, *, held_s: float | None = None) -> None:
        """Add the beginning of a condition that has held for `held_s` when it is noticed."""
        begun = Event(wall(at), Severity.CRITICAL, "b", "nothing listens", {}, at, about, Phase.BEGIN)
        self.log.add(replace(begun, duration_s=held_s))

    def finish(self, at: float, about: str = DOWN) -> None:
        """Add the end of a condition."""
        message, worst = "answers again after 8 s", Severity.CRITICAL
        self.log.add(Event(wall(at), Severity.INFO, "b", message, {}, at, about, Phase.END, 8.0, worst))

    def cycle(self, start: int, times: int, every: int = 40) -> None:
        """Add outages of eight seconds."""
        for number in range(times):
            self.begin(start + every * number)
            self.finish(start + every * number + 8)

    @property
    def lines(self) -> list[str]:
        """The messages in the log."""
        return [event.message for event in self.log.view()]

    @property
    def messages(self) -> list[str]:
        """The messages that were announced."""
        return [event.message for event in self.announced]


def wall(at: float) -> datetime:
    return EPOCH + timedelta(seconds=at)


def instant(at: float) -> Instant:
    return Instant(at, wall(at))


def test_a_flapping_source_is_one_line_with_a_count_and_a_rate() -> None:
    """Seven outages in four minutes: one line, announced once, with the count and the time as data."""
    told = Told()
    told.cycle(0, 7)
    assert told.lines == ["down 7 times in 4 min: nothing listens"]
    (line,) = told.log.view()
    assert (line.count, line.span_s, line.phase, line.worst) == (7, 240.0, Phase.END, Severity.CRITICAL)
    assert told.messages == [
        *["nothing listens", "answers again after 8 s"] * 2,
        "down 3 times in 80 s: nothing listens",
    ]


def test_a_line_spans_its_occurrences_from_beginning_to_beginning() -> None:
    """However late each was noticed; one noticed again after it was lost began no earlier than that."""
    told = Told()
    for at, held_s in ((105, 2), (125, 5), (145, 5)):
        told.begin(at, held_s=held_s)
        told.finish(at + 3)
    (line,) = told.log.view()
    assert (told.lines[0][:20], line.span_s) == ("down 3 times in 37 s", 37)
    told.begin(200, held_s=900)
    assert told.log.view()[0].span_s == 148 - 103


def test_what_settles_is_announced_with_the_state_that_remains() -> None:
    """It settles after twice the usual time without a change, at least a minute: up, or down for good."""
    told = Told()
    told.cycle(0, 5)
    for at in range(169, 300):
        told.log.settle(instant(at))
    assert told.lines == ["quiet for 1 min (down 5 times in 3 min before)"]
    assert told.announced[-1].importance is Severity.CRITICAL
    assert (told.announced[-1].phase, told.announced[-1].at_s) == (Phase.END, 248)
    told.cycle(1000, 3)
    told.begin(1120)
    replayed = Told()
    replayed.log.adopt(told.log.view())
    for at in range(1121, 1300):
        told.log.settle(instant(at))
        replayed.log.settle(instant(at))
    assert replayed.lines == told.lines
    assert told.lines[-1] == "down 4 times in 2 min, the last for 1 min now: nothing listens"
    assert (told.announced[-1].severity, told.announced[-1].phase) == (Severity.CRITICAL, Phase.BEGIN)
    assert told.announced[-1].since == wall(1120)
    told.finish(1400)
    assert told.messages[-1] == "answers again after 8 s"


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans(), st.integers(1, 500)), max_size=300))
def test_whatever_happens_the_log_is_bounded(steps: list[tuple[int, bool, int]]) -> None:
    """At most 200 lines, and at most an announcement for an event and one when it has settled."""
    told, at = Told(), 0
    for number, begins, seconds in steps:
        at += seconds
        about = f"backend:b{number}:unreachable"
        (told.begin if begins else told.finish)(at, about)
        told.log.settle(instant(at))
    assert len(told.log) <= EVENTS_KEPT
    assert len(told.announced) <= 2 * len(steps)


# Events about servers' states: each word that lasts, once, and engines whose processes ended.

BUSY = LaneSample("0", running=9.0, waiting=0.0, kv_cache_percent=20.0, generation_tokens=100.0)
IDLE = LaneSample("0", running=0.0, waiting=0.0, kv_cache_percent=0.0, generation_tokens=100.0)
ASLEEP = LaneSample("0", running=0.0, waiting=0.0, asleep=True, generation_tokens=100.0)


@pytest.fixture
def two_machines() -> World:
    nodes = (NodeTarget("n", "agent", "http://n:9750"), NodeTarget("m", "agent", "http://m:9750"))
    return World(
        Watch(nodes=nodes, backends=(BackendTarget("b", "http://b:8000", "vllm", nodes=("n", "m")),))
    )


def play(two_machines: World, seconds: int, lane: LaneSample | FailureKind) -> list[str]:
    """Poll and judge once a second; return the messages of new events."""
    before = len(two_machines.snapshot().events)
    for _ in range(seconds):
        at = two_machines.at + 1.0
        if isinstance(lane, FailureKind):
            two_machines.fail(at, lane)
        else:
            two_machines.feed(EngineSample(at, "vllm", (lane,)))
        two_machines.store.judge()
    return [event.message for event in two_machines.snapshot().events[before:]]


def test_each_word_that_lasts_is_one_event(two_machines: World) -> None:
    """Sleep, a load of the model and what comes after; a word of a second, or of load alone, is none."""
    assert play(two_machines, 30, IDLE) == []
    assert play(two_machines, 1, ASLEEP) == []
    assert play(two_machines, 30, IDLE) == []
    assert play(two_machines, 40, ASLEEP) == ["asleep (was idle)"]
    assert play(two_machines, 20, IDLE) == ["idle (was asleep)"]
    assert play(two_machines, 40, FailureKind.LOADING) == ["loading (was idle)"]


def test_a_state_that_an_alert_reports_is_not_reported_twice(two_machines: World) -> None:
    """The beginning and the end of the alert are the events."""
    play(two_machines, 30, IDLE)
    for second in (1.0, 3.2, 4.0):  # the third failure comes after the word has lasted
        two_machines.fail(1030.0 + second, FailureKind.REFUSED)
        two_machines.store.judge()
    picture = two_machines.snapshot()
    assert [event.message for event in picture.events] == ["nothing listens there"]
    assert [event.since for event in picture.events] == [alert.since for alert in picture.alerts]
    assert play(two_machines, 26, FailureKind.REFUSED) == []
    assert play(two_machines, 30, IDLE)[0].startswith("answers again after ")


def test_events_beside_alerts_are_in_the_order_of_their_times(two_machines: World) -> None:
    """One that comes and goes while it is an alert has the time of that, only its number, and its place."""
    full, free = (replace(BUSY, kv_cache_percent=percent) for percent in (99.0, 90.0))
    for _ in range(3):
        play(two_machines, 4, free)
        play(two_machines, 4, full)
    play(two_machines, 2, FailureKind.REFUSED)
    play(two_machines, 70, full)
    picture = two_machines.snapshot()
    shown = picture.events_beside_alerts
    assert [event.since for event in shown] == sorted(event.since for event in shown)
    (alert,) = picture.alerts
    (line,) = (event for event in shown if event.about == alert.id and event.phase is Phase.BEGIN)
    assert (line.message, line.since) == ("KV cache full 3 times in 16 s", alert.since)


def test_a_dead_rank_is_in_the_top_line_while_its_server_answers(two_machines: World) -> None:
    """One event for both machines, a critical alert after five seconds, and its end with the next token."""
    one, two = (Workload(pid, "vllm", "worker", f"TP{pid - 40}", "m") for pid in (40, 41))
    play(two_machines, 20, BUSY)
    for name, worker in (("n", one), ("m", two)):
        two_machines.store.accept(SourceKey.node(name), sample(two_machines.at, worker))
    play(two_machines, 1, BUSY)
    two_machines.store.accept(SourceKey.node("m"), sample(two_machines.at))
    two_machines.store.accept(SourceKey.node("n"), sample(two_machines.at + 0.5))
    ended = [event for event in two_machines.snapshot().events if event.kind == "engine-ended"]
    assert len(ended) == 1
    play(two_machines, 8, BUSY)
    top = verdict(two_machines.snapshot())
    assert ended[0].since in [one.since for one in two_machines.snapshot().alerts]
    assert top.severity is Severity.CRITICAL
    assert top.words == top.short == "b: worker TP1 (pid 41) ended"
    play(two_machines, 8, BUSY)
    progress = known(two_machines.view().progress)
    assert (progress.word, progress.why) == (Progress.STUCK, "worker TP1 (pid 41) ended")
    for tokens in (200.0, 300.0, 400.0):
        play(two_machines, 1, LaneSample("0", running=9.0, waiting=0.0, generation_tokens=tokens))
    assert "dead-rank" not in {alert.id.rpartition(":")[2] for alert in two_machines.snapshot().alerts}


def test_another_model_at_the_same_port_is_an_event(two_machines: World) -> None:
    """Of a page that names it, or of an identity; a second name of the same server is none."""
    for second, models in enumerate([("big",), ("big",), ("tiny",), ("alias", "tiny"), ("tiny",)]):
        two_machines.feed(
            EngineSample(1001.0 + second, "vllm", (IDLE,), models=models, start_time=float(second // 2))
        )
    said = [event.message for event in two_machines.snapshot().events if event.kind == "model"]
    assert said == ["serves tiny (was big)"]


@pytest.mark.parametrize("asked", ["hosted_vllm/org/big", "org/big"])
def test_a_deployment_whose_model_is_gone_is_an_alert_of_the_router(asked: str) -> None:
    """It is raised by the server's own list of models, and ends when the model is back."""
    router = RouterTarget("proxy", "http://p:4000", "least-busy", ())
    two_machines = World(Watch(backends=(BackendTarget("b", "http://b:8000", "vllm"),), routers=(router,)))
    listed = (Deployment("d-1", "http://b:8000/v1", "any", asked),)
    said: list[list[str]] = []
    for model in ("org/big", "tiny", "org/big"):
        two_machines.store.accept(
            SourceKey.router("proxy"), RouterSample(two_machines.at, deployments=listed)
        )
        two_machines.feed(EngineSample(two_machines.at + 1.0, "vllm", (IDLE,), models=(model,)))
        two_machines.store.identify(SourceKey.backend("b"), EngineIdentity(model=model, models=(model,)))
        two_machines.store.judge()
        said.append([alert.message for alert in two_machines.snapshot().alerts])
    assert said == [[], [f"deployment d-1 asks b for {asked}, which serves tiny"], []]


@pytest.mark.parametrize(("started_s", "uptime_s"), [(-3600.0, 3620.0), (600.0, None), (-1.8e9, None)])
def test_an_uptime_that_contradicts_what_was_seen_is_unknown(
    two_machines: World, started_s: float, uptime_s: float | None
) -> None:
    """A server watched for 20 s that says it began in the future, 2 s ago or 57 years ago: clocks differ."""
    start_time = two_machines.wall(1000.0 + started_s)
    for second in range(21):
        two_machines.feed(EngineSample(1000.0 + second, "vllm", (IDLE,), start_time=start_time))
    assert two_machines.view().uptime_s == uptime_s


# Events about processes of engines that ended, faults in the kernel's log, and reboots.

SPARK_2 = SourceKey.node("spark-2")
SERVER = Workload(10, "vllm", "server", None, "m", 8000, 10, age_s=60.0)
CORE = Workload(11, "vllm", "engine core", None, "m", None, 10, age_s=50.0)
WORKERS = tuple(Workload(pid, "vllm", "worker", f"TP{pid - 12}", "m", None, 10) for pid in (12, 13))
READABLE = KernelLog()


@pytest.fixture
def spark() -> World:
    node = NodeTarget("spark-2", "agent", "http://192.168.1.12:9750")
    return World(Watch(nodes=(node,), backends=(BackendTarget("v", "http://192.168.1.12:8000", "vllm"),)))


def sample(
    at: float,
    *running: Workload,
    kills: int | None = 0,
    kernel: KernelLog | None = READABLE,
) -> NodeSample:
    total, taken = round(121.6 * GIB), round(118.9 * GIB)
    memory = MemoryReading(unified=True, total_bytes=total, used_bytes=taken, oom_kills=kills)
    held = tuple(GpuProcess(one.pid, "VLLM::EngineCore", GIB) for one in running if one.role != "server")
    gpu = GpuReading(0, temperature_c=71.0, power_w=84.0, processes=held)
    return NodeSample(at, memory=memory, gpus=(gpu,), workloads=Workloads(running, 0, 0.0), kernel=kernel)


def see(spark: World, reading: NodeSample) -> list[Event]:
    before = len(spark.snapshot().events)
    spark.see(reading, "spark-2")
    return list(spark.snapshot().events[before:])


def clock(spark: World, at: float) -> str:
    return f"{datetime.fromtimestamp(spark.wall(at), UTC).astimezone():%H:%M:%S}"


def test_an_engine_core_that_ended_is_an_event_with_what_is_known(spark: World) -> None:
    """When, which process, what the kernel says, and the machine's last figures; its server still runs."""
    assert see(spark, sample(1000, SERVER, CORE)) == []
    (event,) = see(spark, sample(1005, SERVER))
    assert event.message == (
        f"vllm ended: engine core (pid 11), between {clock(spark, 1000)} and {clock(spark, 1005)}; "
        "no OOM kill, no Xid: its own log says why, or a user ended it; "
        "its server (process 10) still runs; "
        "the machine before that: 118.9 of 121.6 GiB, 71 °C, 84 W"
    )
    assert (event.subject, event.severity, event.kind) == ("v", Severity.CRITICAL, "engine-ended")


def test_a_kill_for_memory_is_named(spark: World) -> None:
    """By the kernel's counter; by its log where that may be read."""
    see(spark, sample(1000, SERVER, CORE))
    (event,) = see(spark, sample(1005, SERVER, kills=1))
    assert "the kernel killed 1 process for lack of memory (OOM)" in event.message
    see(spark, sample(1010, SERVER, CORE, kills=1))
    log = KernelLog((KernelLine(77.0, OOM, "Out of memory: Killed process 11", pid=11),))
    (event,) = see(spark, sample(1015, SERVER, kills=2, kernel=log))
    assert "the kernel killed it for lack of memory (OOM)" in event.message


def test_a_new_xid_is_an_event_with_advice(spark: World) -> None:
    """Lines that were there at first sight are old."""
    old, new = KernelLine(5.0, XID, "x", 31), KernelLine(9.0, XID, "x", 79, 11)
    assert see(spark, sample(1000, CORE, kernel=KernelLog((old,)))) == []
    (event,) = see(spark, sample(1002, CORE, kernel=KernelLog((old, new))))
    assert event.message == "Xid 79: GPU fell off the bus; reboot the machine (process 11)"
    assert (event.subject, event.severity) == ("spark-2", Severity.CRITICAL)
    assert see(spark, sample(1004, CORE, kernel=KernelLog((old, new)))) == []


def test_a_reboot_says_when_and_how_the_machine_was_last_seen(spark: World) -> None:
    """A second event follows with what the machine has read about it."""
    spark.store.identify(SPARK_2, NodeIdentity(boot_id="one"))
    see(spark, sample(1000, SERVER, CORE))
    spark.at = 1230
    booted_at, booted = spark.wall(1200), clock(spark, 1200)
    spark.store.identify(SPARK_2, NodeIdentity(boot_id="two", booted_at=booted_at))
    assert spark.snapshot().events[-1].message == (
        f"rebooted at {booted}; last sample {clock(spark, 1000)} at 118.9 of 121.6 GiB, "
        "71 °C, 84 W: perhaps it ran out of memory"
    )
    last = LastBoot(clean=False, last_line="14:03:11 spark-2 kernel: swap", unreadable="pstore: root")
    spark.store.identify(SPARK_2, NodeIdentity(boot_id="two", booted_at=booted_at, last_boot=last))
    assert spark.snapshot().events[-1].message == (
        "how it went down: it was not shut down in order; last line of its journal: "
        "14:03:11 spark-2 kernel: swap; pstore: root"
    )
    assert see(spark, sample(1232)) == []


def test_one_end_of_an_engine_is_one_event(spark: World) -> None:
    """However many readings its processes take to go, also if the children lose their server's number."""
    orphan = Workload(11, "vllm", "engine core", None, "m", None, None)
    see(spark, sample(1000, SERVER, CORE, *WORKERS))
    assert len(see(spark, sample(1002, SERVER, CORE, WORKERS[1]))) == 1
    assert see(spark, sample(1004, SERVER, CORE)) == []
    assert see(spark, sample(1006, orphan)) == []
    assert see(spark, sample(1008)) == []
    server, worker = replace(SERVER, pid=20, server=20), replace(WORKERS[0], pid=21, server=20)
    see(spark, sample(1010, server, worker))
    assert len(see(spark, sample(1012, server))) == 1
    assert see(spark, sample(1014)) == []
