"""States and limits of servers in the store: what they are beside the figures, and during a sweep.

The store: names, groups, gaps, totals, events, bounds.

A GPU that disappears: critical, named on every surface, an event when it goes and when it comes back.
"""

from __future__ import annotations

import json
import math
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from sparktop.analysis.summary import verdict
from sparktop.demo.scenario import SCENARIOS
from sparktop.hardware.machine import Machine
from sparktop.model.engine import EngineIdentity, Histogram, LaneSample
from sparktop.model.event import Severity
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import NodeIdentity, NodeSample
from sparktop.model.router import LITELLM, Deployment, RouterSample, Scrape, Sum
from sparktop.model.snapshot import BackendState, Limit, LimitKind, Snapshot
from sparktop.model.targets import BackendTarget, NodeTarget, RouterTarget, Watch
from sparktop.panels.machine.detail import node_detail
from sparktop.panels.machine.panel import node_panel
from sparktop.panels.parts.figures import state_words
from sparktop.panels.parts.graph import TimeAxis, TimeWindow
from sparktop.panels.parts.text import row_text
from sparktop.report import html, text_snapshot
from sparktop.report.json_snapshot import to_json
from sparktop.simulation.calibration import SOLO
from sparktop.sources.decode import decode, on_local_clock
from sparktop.sources.replies import encode, make_reply
from sparktop.store import SourceKey
from stage.limited import LengthsDraw, LimitedRun, Setting, Users
from stage.rehearsal import Rehearsal
from tests.hardware.fake_driver import FakeDriver, h200, refuse
from tests.known import known
from tests.store.conftest import World, page


@pytest.mark.parametrize(("kind", "running"), [(FailureKind.LOADING, None), (FailureKind.TIMEOUT, 2.0)])
def test_a_new_process_has_no_figures_of_the_one_that_ended(
    world: World, kind: FailureKind, running: float | None
) -> None:
    """While it loads its model, nothing runs; where a poll fails, the last values stay."""
    for second in range(20):
        world.lane(1000 + second, running=2.0, waiting=0.0, generation_tokens=64.0 * second)
    view = world.feed(Failure(kind, "503", 1020))
    assert (view.running, view.generation_tps is None) == (running, running is None)


def test_idle_never_stands_beside_a_rate(world: World) -> None:
    """After twenty seconds of work it is idle as soon as the rate beside the state is 0, and not before."""
    words: list[tuple[str, bool]] = []
    for second in range(45):
        busy = 5 <= second < 25
        tokens = 128.0 * min(20, max(0, second - 4))
        view = world.lane(1000 + second, running=2.0 * busy, waiting=0.0, generation_tokens=tokens)
        words.append((view.state_text, bool(view.generation_tps)))
    assert all(not moving for word, moving in words if word.startswith("idle"))
    assert {word for word, _ in words[35:]} == {"idle"}
    assert (words[24][0], words[30][0], words[40][0]) == ("bored", "bored", "idle")


def test_queueing_beside_nothing_waiting_says_that_it_was(world: World) -> None:
    """If requests wait in two samples of three, the state holds, and is shown as past while none waits."""
    seen = set()
    for second in range(24):
        waiting = float(second % 3 > 0)
        view = world.lane(1000 + second, running=4.0, waiting=waiting, generation_tokens=100.0 * second)
        if second >= 10:
            seen.add((*dict.fromkeys(state_words(view)), view.waiting))
            assert view.waiting or verdict(world.snapshot()).words == "1 queueing lately"
    assert seen == {("queueing", 1.0), ("queueing lately", "was queueing", "queued", 0.0)}


def test_preemptions_between_two_scrapes_make_a_state() -> None:
    """A scrape every 15 s: one sample in the window of the state; a counter's first value says nothing."""
    world = World(Watch(backends=(BackendTarget("b", "http://b:8000", scrape=Scrape("prometheus", 15.0)),)))
    words: list[str] = []
    for number, count in enumerate((500.0, 500.0, 503.0, 503.0)):
        at = 1000.0 + 15 * number
        view = world.lane(at, running=9.0, waiting=0.0, preemptions=count)
        words.append(f"{view.state_text}: {view.state_rule}" if number == 2 else view.state_text)
    assert words == ["busy", "busy", "preempting: 3 preemptions in the last 15 s", "busy"]


# The store's verdicts on limits: when they are judged, when they change, and when there is none.

LENGTHS = LengthsDraw(200, 300)


@pytest.fixture
def full() -> LimitedRun:
    """Return a server of 8 slots with 20 users."""
    return LimitedRun(Setting(replace(SOLO, max_num_seqs=8), Users(20, LENGTHS)), 1)


def of(run: LimitedRun) -> Limit | None:
    (view,) = run.store.snapshot().backends
    return view.limited_by


def test_a_verdict_needs_some_seconds(full: LimitedRun) -> None:
    """At first there is none, and then it stands in the view of the backend."""
    assert full.play(5) == (None,)
    (found,) = map(known, full.play(25))
    assert found.kind is LimitKind.SLOTS
    assert found.line.startswith(
        "limited by slots, last 25 s: 8 of 8 run, 12 wait on average; KV cache 1 %; room for "
    )


def test_a_server_that_does_not_answer_has_no_limit(full: LimitedRun) -> None:
    """Its last verdict does not count any more."""
    full.play(30)
    full.store.accept(SourceKey.backend("server-1"), Failure(FailureKind.REFUSED, "refused", 30.5), 1.0)
    assert of(full) is None


@pytest.mark.parametrize(
    ("asks_for", "kind"),
    [
        (None, LimitKind.CLIENT_OR_ROUTER),
        ("openai/served", LimitKind.CLIENT_OR_ROUTER),
        ("openai/other", LimitKind.CLIENT),
    ],
)
def test_a_router_whose_servers_are_not_known_may_be_what_sends_too_little(
    asks_for: str | None, kind: LimitKind
) -> None:
    """It lists no deployments, or one of the server's model at another address; not while it is down."""
    run = LimitedRun(Setting(SOLO, Users(0, LENGTHS, per_s=1e-6)), 1)
    run.store.add(RouterTarget("front", "http://front:4000"))
    run.play(1)
    asked = run.store.snapshot().backends[0].model if asks_for == "openai/served" else "other"
    listed = (Deployment("d1", "http://elsewhere:8000", "any", asks_for=f"openai/{asked}"),)
    sample = RouterSample(1.0, LITELLM, alive=True, deployments=None if asks_for is None else listed)
    run.store.accept(SourceKey.router("front"), sample, 1.0)
    run.play(40)
    assert known(of(run)).kind is kind
    run.store.accept(SourceKey.router("front"), Failure(FailureKind.REFUSED, "refused", 41.0), 1.0)
    run.play(15)
    assert known(of(run)).kind is LimitKind.CLIENT


# What the store makes of engines that report less than vLLM, or later.


def test_the_server_s_own_rate_is_the_live_one(world: World) -> None:
    """Where tokens are counted at the end of requests, the live rate is the gauge, summed over lanes."""
    lanes = [
        LaneSample(name, generation_tokens=0.0, generation_tps_gauge=gauge, per_finished_request=True)
        for name, gauge in (("0", 40.0), ("1", 2.5))
    ]
    for second in range(3):
        view = world.feed(page(1000 + second, *lanes))
    assert (view.generation_tps, view.generation_tps_1s) == (0.0, 42.5)
    assert view.history.generation_tps.peak(0.0) == 42.5


def test_a_gauge_that_outlives_its_traffic_is_not_believed(world: World) -> None:
    """SGLang keeps its last rate for 30 s: where its counter moves with the tokens, a still one overrules."""
    rates = []
    for second in range(17):
        tokens = 60.0 * min(second, 4)
        view = world.lane(1000 + second, generation_tokens=tokens, generation_tps_gauge=50.0)
        rates.append((view.generation_tps, view.generation_tps_1s))
    assert (rates[4][1], rates[16]) == (50.0, (0.0, 0.0))


def test_a_server_without_figures_is_unknown_in_its_own_words(world: World) -> None:
    """No load figure gives no state but "unknown", with the source's note as the rule; nothing becomes 0."""
    view = world.feed(replace(page(1000, LaneSample("0")), note="1 model loaded; no figures"))
    assert (view.state, view.state_rule) == (BackendState.UNKNOWN, "1 model loaded; no figures")
    assert (view.running, view.generation_tps, view.kv_cache_percent, view.generation_tokens) == (None,) * 4
    assert view.model == "m"
    assert view.ok


def test_a_mean_without_buckets_is_a_mean_without_quantiles(world: World) -> None:
    """llama.cpp reports a sum and a count: the mean of the window is known, its quantiles are not."""
    for second in range(3):
        tokens = 100.0 * second
        view = world.lane(1000 + second, itl=Histogram((math.inf,), (tokens,), tokens * 0.03))
    assert view.itl.mean_s == pytest.approx(0.03)
    assert (view.itl.count, view.itl.p50, view.itl.p99) == (200.0, None, None)
    assert view.itl.note == "no usable buckets"


# The state of a backend agrees with what limits it, and with the sweep of this program that loads it.

_SENDS = {LimitKind.CLIENT, LimitKind.CLIENT_OR_ROUTER, LimitKind.ROUTER}
_WORKS = set(LimitKind) - _SENDS - {LimitKind.UNKNOWN}
_RESTS = {BackendState.BORED, BackendState.IDLE}
SWEPT = frozenset({"b"})


@pytest.mark.long
@pytest.mark.parametrize("name", ["oscillation", "kv-starved"])
def test_no_backend_is_bored_at_the_limit_of_its_engine(name: str) -> None:
    """In each snapshot of a scenario, no state of spare capacity is beside a limit of the work itself."""
    live = Rehearsal(backends=2, nodes=2, scenario=SCENARIOS[name])
    for _ in range(0, 60, 3):
        for view in live.play(3).snapshot().backends:
            limit = view.limited_by
            assert view.state not in _RESTS or limit is None or limit.kind not in _WORKS, view.state_rule


@pytest.mark.parametrize("name", ["hang-a", "kv-wait"])
def test_no_limit_of_decoding_is_named_while_none_decodes(name: str) -> None:
    """Neither beside reads that deny it nor without a token, in the first seconds of a standstill, too."""
    scenario = SCENARIOS[name]
    live, named = Rehearsal(backends=2, nodes=2 * scenario.profile.nodes, scenario=scenario), 0
    for _ in range(100):
        for view in live.play(1).snapshot().backends:
            limit, reads = view.limited_by, view.estimated_read_gb_per_s
            if (limit and limit.kind is LimitKind.BANDWIDTH) or "memory bandwidth" in view.state_rule:
                named += 1
                assert view.generation_tps_1s, view.state_rule
                assert reads is None or reads >= 273 / 2, view.state_rule
    assert named


def test_a_server_whose_gpu_works_for_many_requests_is_not_bored() -> None:
    """Of two servers that take turns, the one that has just got its requests works as the other one did."""
    rehearsal = Rehearsal(nodes=2, scenario=SCENARIOS["oscillation"])
    bored = 0
    for _ in range(90):
        shown = rehearsal.play(1).snapshot()
        for view, node in zip(shown.backends, shown.nodes, strict=True):
            works = (view.running or 0) >= 8 and (node.history.gpu_percent.last or 0) >= 80
            bored += works and view.state is BackendState.BORED
    assert bored <= 1, "one poll may pass before it is seen"


def test_what_a_sweep_fills_is_no_alert(world: World) -> None:
    """A full KV cache and waiting requests are named as the sweep's, without alert; later they are real."""
    full: dict[str, Any] = {"running": 9.0, "waiting": 5.0, "kv_cache_percent": 99.0, "preemptions": 3.0}
    world.lane(1000, **full)
    assert [alert.id for alert in world.snapshot().alerts] == ["backend:b:kv-full"]
    with world.store.loaded_from_here(SWEPT):
        for at in range(1001, 1020):
            world.lane(at, **full | {"preemptions": 3.0 + (at > 1010)})
            shown = world.snapshot()
            assert shown.alerts == ()
            assert shown.backends[0].state_text.endswith(" (sweep)")
            assert verdict(shown).severity is Severity.INFO
        assert shown.backends[0].state is BackendState.PREEMPTING
    world.lane(1025, **full | {"preemptions": 4.0})
    assert world.snapshot().alerts == ()
    world.lane(1040, **full | {"preemptions": 4.0})
    shown = world.snapshot()
    assert [alert.id for alert in shown.alerts] == ["backend:b:kv-full"]
    assert shown.backends[0].state_text == "KV-full"


def test_a_fault_during_a_sweep_is_an_alert(world: World) -> None:
    """A server that does not answer is down, whoever loads it."""
    world.lane(1000, running=4.0)
    with world.store.loaded_from_here(SWEPT):
        for at in range(1001, 1005):
            world.fail(at)
        shown = world.snapshot()
        assert [alert.id for alert in shown.alerts] == ["backend:b:unreachable"]
        assert shown.backends[0].state_text == "unreachable"


TWO = Watch(backends=(BackendTarget("b", "http://b:8000"), BackendTarget("c", "http://c:8000")))


def test_a_failed_backend_keeps_its_figures_with_their_age(world: World) -> None:
    """The last figures stay, say how old they are and since when it fails."""
    world.lane(1000, running=3)
    world.fail(1002)
    view = world.fail(1007)
    assert (view.running, view.age_s, view.ok, view.state) == (3, 7.0, False, BackendState.UNREACHABLE)
    assert view.failing_since == world.snapshot().taken_at - timedelta(seconds=5)
    assert world.lane(1008, running=4).failing_since is None


def test_a_failure_is_a_gap_in_every_history(world: World) -> None:
    """Between two samples with a failure the series has a None, not a line."""
    for at in (1000, 1001):
        told: dict[str, Any] = {"running": 3, "waiting": 1.0, "kv_cache_percent": 50.0}
        world.lane(at, generation_tokens=at, prompt_tokens=at, **told)
    history = world.fail(1002).history
    assert [value for _, value in history.running] == [3, 3, None]
    assert [value for _, value in history.kv_cache_percent] == [50, 50, None]
    for series in (history.generation_tps, history.prompt_tps, history.waiting):
        assert [at for at, value in series if value is None][-1] == 1002


def test_totals_are_over_backends_that_answer() -> None:
    """The last figures of a dead backend are not in the sum; a figure that no backend reports is None."""
    world = World(TWO)
    world.lane(1000, running=3, waiting=2.0)
    world.lane(1000, "c", running=4)
    assert (world.snapshot().totals.running.value, world.snapshot().totals.waiting.value) == (7, 2)
    world.store.accept(SourceKey.backend("b"), Failure(FailureKind.TIMEOUT, "slow", 1001))
    totals = world.snapshot().totals
    assert (totals.running, totals.waiting.value, totals.generation_tps.value) == (Sum(4, 1, 2), None, None)


def test_a_group_is_the_router_then_the_model() -> None:
    """Listed backends belong to their router, others to their model, fresh ones to one group together."""
    watch = Watch(
        backends=tuple(BackendTarget(name, f"http://{name}") for name in "abcd"),
        routers=(RouterTarget("proxy", "http://p", backends=("a", "b")),),
    )
    world = World(watch)
    groups = {view.name: view.group for view in world.snapshot().backends}
    assert groups == {"a": "proxy", "b": "proxy", "c": "backends", "d": "backends"}
    world.lane(1000, "c", running=1)
    world.store.identify(SourceKey.backend("d"), EngineIdentity("0.32", "other", 4096))
    groups = {view.name: view.group for view in world.snapshot().backends}
    assert groups == {"a": "proxy", "b": "proxy", "c": "m", "d": "other"}


def test_targets_can_be_added_and_removed(world: World) -> None:
    """Discovery adds backends later; a name that is known keeps its history; removing drops alerts too."""
    world.lane(1000, running=3)
    world.store.add(BackendTarget("b", "http://elsewhere"), BackendTarget("new", "http://new"))
    assert [(view.name, view.running) for view in world.snapshot().backends] == [("b", 3), ("new", None)]
    for at in (1001, 1002, 1003):
        world.fail(at)
    assert world.snapshot().alerts
    world.store.remove(SourceKey.backend("b"))
    assert [view.name for view in world.snapshot().backends] == ["new"]
    assert world.snapshot().alerts == ()


def test_a_simulated_server_marks_the_picture(world: World) -> None:
    """A version that ends in +simulated is enough; a real one changes nothing."""
    world.lane(1000)
    world.store.identify(SourceKey.backend("b"), EngineIdentity(version="0.32.0"))
    assert not world.store.snapshot().simulated
    world.store.identify(SourceKey.backend("b"), EngineIdentity(version="0.32.0+simulated"))
    assert world.store.snapshot().simulated


NODE = SourceKey.node("n")
AXIS, WINDOW = TimeAxis(1100.0, 1.0), TimeWindow(1100.0, 76.0)


def eight(**changes: Any) -> FakeDriver:  # noqa: ANN401 - answers of the driver
    """Return the driver of a machine with eight H200."""
    return FakeDriver(
        *(h200(nvmlDeviceGetUUID=f"GPU-{index}", **changes) for index in range(8)), driver="580.95"
    )


class Watched:
    """A machine whose samples go into a store, over the wire where an agent reads it."""

    def __init__(self, driver: FakeDriver, via: str = "local") -> None:
        self.world = World(Watch(nodes=(NodeTarget("n", via=via),)))
        self._via = via
        self.driven_by(driver)

    def driven_by(self, driver: FakeDriver) -> None:
        """Start the machine with a driver."""
        self._machine = Machine(Path("/nonexistent"), nvml=driver, clock=lambda: float(self.world.at))

    def look(self, at: float) -> Snapshot:
        """Read the machine at a time; return the snapshot after it."""
        self.world.at = at
        sample: NodeSample | None = self._machine.read()
        assert sample is not None
        if self._via != "local":
            sample = known(on_local_clock(decode(encode(make_reply(NodeIdentity(), (sample,), at))), at))
        self.world.store.accept(NODE, sample)
        picture: Snapshot = self.world.snapshot()
        return picture


def alerts(picture: Snapshot) -> list[tuple[str, Severity]]:
    return [(alert.id, alert.severity) for alert in picture.alerts if "gpu" in alert.id]


def events(picture: Snapshot) -> list[tuple[Severity, str]]:
    return [(event.severity, event.message) for event in picture.events]


@pytest.mark.parametrize("via", ["local", "agent"])
def test_one_of_eight_that_is_lost_is_critical_and_named(via: str) -> None:
    """Alert and event come with the next sample; once the driver has it again, an event ends the alert."""
    driver = eight()
    watched = Watched(driver, via)
    assert alerts(watched.look(1000)) == []
    driver.lost = {3}
    picture = watched.look(1002)
    assert alerts(picture) == [("node:n:gpu-lost/3", Severity.CRITICAL)]
    (lost,) = picture.nodes[0].gpus_lost
    assert (lost.index, lost.name, lost.uuid) == (3, "NVIDIA H200", "GPU-3")
    assert "GPU 3 (NVIDIA H200, GPU-3) is lost" in picture.alerts[0].message
    assert [severity for severity, _ in events(watched.look(1004))] == [Severity.CRITICAL]
    driver.lost = set()
    picture = watched.look(1040)
    assert (alerts(picture), picture.nodes[0].gpus_lost) == ([], ())
    assert events(picture)[-1] == (Severity.INFO, "GPU 3 (NVIDIA H200, GPU-3) answers again after 38 s")


def test_every_surface_names_it() -> None:
    """Panel, detail, text, Markdown, HTML and JSON say which GPU is missing: none lists seven in silence."""
    driver = eight()
    watched = Watched(driver)
    watched.look(1000)
    driver.lost = {3}
    picture = watched.look(1002)
    (view,) = picture.nodes
    surfaces = {
        "panel": "\n".join(map(row_text, node_panel(view, 78, 8, WINDOW, 100.0))),
        "wide panel": "\n".join(map(row_text, node_panel(view, 118, 10, WINDOW, 100.0))),
        "detail": "\n".join(map(row_text, node_detail(view, (), 118, 40, AXIS)[0])),
        "text": text_snapshot.render(picture, 100),
        "md": text_snapshot.markdown(picture),
        "html": html.render(picture, ""),
    }
    assert [name for name, text in surfaces.items() if "GPU 3" not in text] == []
    assert " 3 lost NVIDIA H200: the driver lost it" in surfaces["detail"]
    (node,) = json.loads(json.dumps(to_json(picture)))["nodes"]
    assert [(one["index"], one["uuid"]) for one in node["gpus_lost"]] == [(3, "GPU-3")]
    assert len(node["gpus"]) == 7


def test_a_driver_that_renumbers_what_is_left_still_lacks_one() -> None:
    """After a reboot the driver lists seven as 0 to 6: the UUID says which one is missing."""
    rest = eight()
    rest.gpus.pop(3)
    watched = Watched(eight())
    watched.look(1000)
    watched.driven_by(rest)
    picture = watched.look(1060)
    assert [(one.index, one.uuid) for one in picture.nodes[0].gpus_lost] == [(3, "GPU-3")]
    assert "does not list it" in picture.alerts[0].message


def test_a_driver_restart_is_not_eight_lost_gpus() -> None:
    """All gone at once are a warning with the driver's words, later critical, and an event for each."""
    driver = eight()
    watched = Watched(driver)
    watched.look(1000)
    driver.failing = {"nvmlDeviceGetUtilizationRates": refuse(9)}
    driver.init_error = refuse(9)
    first = watched.look(1002)
    assert alerts(first) == [("node:n:gpus-gone", Severity.WARNING)]
    assert "none of its 8 GPUs answers" in first.alerts[0].message
    assert alerts(watched.look(1034)) == [("node:n:gpus-gone", Severity.WARNING)]
    assert alerts(watched.look(1066)) == [("node:n:gpus-gone", Severity.CRITICAL)]
    driver.failing, driver.init_error = {}, None
    picture = watched.look(1098)
    assert (alerts(picture), picture.nodes[0].gpus_lost) == ([], ())
    severities = [severity for severity, _ in events(picture)]
    assert severities == [Severity.WARNING, Severity.CRITICAL, Severity.INFO]
    assert picture.events[-1].message == "the GPUs answer again after 1 min"
