"""Figures of a server from two pages: rates, latencies, counters, drafts."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sparktop.engines import read_page
from sparktop.model.engine import EngineSample, Histogram, LaneSample
from sparktop.model.node import GpuReading, MemoryReading, NodeSample
from sparktop.model.snapshot import BackendView
from sparktop.model.targets import BackendTarget, ModelFacts, NodeTarget, Watch
from sparktop.report.tables import also_reported
from tests.store.conftest import EPOCH, START, World, observe, page


def test_the_share_of_an_outer_cache_is_known_once_something_was_looked_up(world: World) -> None:
    """Of 400 tokens looked up in the KV connector's cache 100 were found: 25 %; unknown before, not 0."""
    shares = []
    for at, hits, queries in ((1000, 50.0, 1000.0), (1002, 50.0, 1000.0), (1004, 150.0, 1400.0)):
        view = world.lane(at, external_cache_hits=hits, external_cache_queries=queries)
        shares.append(view.counter_figures["external_cache_hit_percent"])
    assert shares == [None, None, 25.0]


def test_prompt_tokens_from_the_cache_have_a_rate_of_their_own(world: World) -> None:
    """Computed and cached prompt tokens have separate rates if the server separates them; none is guessed."""
    lane = LaneSample("0", prompt_tokens=0.0, prompt_tokens_computed=0.0, prompt_tokens_cached=0.0)
    world.feed(page(1000.0, lane))
    later = replace(lane, prompt_tokens=100.0, prompt_tokens_computed=70.0, prompt_tokens_cached=30.0)
    view = world.feed(page(1002.0, later))
    assert (view.prompt_tps, view.prompt_cached_tps) == (35.0, 15.0)
    assert view.history.prompt_cached_tps.last == 15.0


def test_the_roofline_needs_a_gb10_and_the_bytes_of_a_token() -> None:
    """The share of the bandwidth appears with a GB10's first sample, the limit with the model's fact."""
    watch = Watch(
        nodes=(NodeTarget("n"),),
        backends=(BackendTarget("b", "http://b:8000", nodes=("n",)),),
        models={"m": ModelFacts(bytes_per_token_gb=2.73)},
    )
    world = World(watch)
    world.lane(1000.0, read_bytes_per_gpu=1e9)
    view = world.lane(1002.0, read_bytes_per_gpu=274e9)
    assert view.estimated_read_gb_per_s == pytest.approx(136.5)
    assert (view.roofline_percent, view.roofline_tps) == (None, None)
    world.see(NodeSample(1002.0, memory=MemoryReading(unified=True), gpus=(GpuReading(0, "NVIDIA GB10"),)))
    view = world.view()
    assert view.roofline_percent == pytest.approx(50.0)
    assert view.roofline_tps == pytest.approx(100.0)


# Figures that only some servers report, from two pages of one server to the view.

PAGE = Path(__file__).parents[2] / "data" / "vllm-extras" / "spec-lora-offload.prom"
EXPECTED = {
    "cached_elsewhere_percent": pytest.approx(1.71),
    "refused_requests": 14.0,
    "corrupted_requests": 2.0,
    "http_4xx": 24.0,
    "http_5xx": 6.0,
    "http_error_percent": pytest.approx(100 * 15 / 5142),
    "waiting_deferred": 2.0,
    "kv_fetch_waiting": 4.0,
    "kv_fetching": 2.0,
    "kv_transfer_mb_per_s": pytest.approx(3e3 / 4),
    "kv_transfer_ms": pytest.approx(50.0),
    "kv_transfer_failures": 6.0,
    "kv_expired_requests": 8.0,
    "offload_load_mb_per_s": pytest.approx(175.0),
    "offload_store_mb_per_s": pytest.approx(225.0),
    "offload_cache_percent": 31.0,
    "offload_pending_blocks": 12.0,
    "offload_failures": 12.0,
    "lmcache_hit_percent": pytest.approx(62.0),
    "lmcache_local_gb": pytest.approx(5.0),
    "lmcache_retrieve_ms": pytest.approx(50.0),
    "lmcache_remote_get_ms": pytest.approx(30.0),
    "lora_running": 2.0,
    "lora_waiting": 0.0,
    "lora_max": 4.0,
}


def doubled(sample: EngineSample, at: float) -> EngineSample:
    """Return the same server after it counted everything once more."""
    (lane,) = sample.lanes
    grown = {
        name: 2 * value
        for name in ("prompt_tokens", "generation_tokens", "spec_drafts", "spec_accepted_tokens")
        if (value := getattr(lane, name)) is not None
    }
    counts = {name: 2 * value for name, value in lane.counts.items()}
    return replace(sample, at=at, lanes=(replace(lane, counts=counts, **grown),))


def test_every_figure_of_the_page_reaches_the_view_with_its_unit(world: World) -> None:
    """Rates, means and percentages are of the growth in 4 s; counts and gauges are the newest values."""
    first = read_page(PAGE.read_bytes(), at=1000.0)
    world.feed(first)
    view = world.feed(doubled(first, 1004.0))
    known = {name: value for name, value in view.counter_figures.items() if value is not None}
    assert known == EXPECTED
    assert view.spec_accept_by_position == (80.0, 50.0, 20.0)
    assert (view.spec_accepted_per_draft, view.spec_verdict) == (1.5, None)
    rows = [row[2:] for row in also_reported([view]).rows]
    assert len(rows) == len(EXPECTED)
    counted = {("refused", "14 since start"), ("error rate", "<1 %"), ("at most", "4")}
    assert {*rows} >= counted | {("transfer", "750 MB/s"), ("each takes", "50.0 ms")}


def test_faults_that_never_happened_are_not_shown(world: World) -> None:
    """A server that refused nothing has no line of it; the value is a known zero."""
    for at in (1000, 1002):
        view = world.lane(at, counts={"refused": 0.0, "http_5xx": 0.0}, gauges={"deferred": 0.0})
    assert view.counter_figures["refused_requests"] == 0.0
    assert view.counter_figures["http_4xx"] is None
    assert also_reported([view]).rows == ()


# Latencies and ratios over a minute.


def test_a_prefix_cache_ratio_is_of_the_last_minute(world: World) -> None:
    """The ratio is hits / queries of the window; without queries there is none, rather than 0 %."""
    hits, queries, shares = 0.0, 0.0, []
    for second in range(140):
        if second < 70:
            hits, queries = hits + (10 if second > 5 else 0), queries + 20
        view = world.lane(1000 + second, prefix_cache_hits=hits, prefix_cache_queries=queries)
        shares.append(view.prefix_cache_hit_percent)
    assert shares[69] == pytest.approx(50)
    assert shares[139] is None


# Token rates: windows, gaps, restarts, load balancers, lanes that come and go.

SEVERAL_SERVERS = "several servers share this address: rates have gaps"


def tokens_of(view: BackendView) -> object:
    return view.generation_tps, view.generation_tps_1s


def test_a_rate_covers_two_intervals(world: World) -> None:
    """Over a fifth of a second or one interval there is no rate; from two on it says how much it covers."""
    for at, count in ((1000.8, 0), (1001.0, 25), (1002.0, 225)):
        view = world.tokens(at, count)
        assert (view.generation_tps, view.rate_window_s) == (None, None)
    view = world.tokens(1003.0, 425)
    assert view.generation_tps == pytest.approx(425 / 2.2)
    assert view.rate_window_s == pytest.approx(2.2)
    for second in range(4, 30):
        view = world.tokens(1000.0 + second, 200.0 * second - 175)
    assert view.rate_window_s == pytest.approx(10.0)


def test_extra_samples_within_an_interval_are_for_the_balance_alone(world: World) -> None:
    """They leave figures as they are, except after a failure or with a preemption; the load has each."""
    lane = LaneSample("0", running=4.0, generation_tokens=0.0, preemptions=0.0)
    shown: list[float | None] = []
    for tick in range(4):
        fed = replace(lane, running=4.0 + tick, generation_tokens=25.0 * tick)
        shown.append(world.feed(page(START + tick / 4, fed)).running)
    lane = replace(lane, generation_tokens=100.0)
    load = world.feed(page(START + 1, replace(lane, running=8.0))).load
    assert load is not None
    assert (shown, load.running.values()) == ([4.0] * 4, [4.0, 5.0, 6.0, 7.0, 8.0])
    assert load.generation_tps.last == 100.0
    world.fail(START + 1.25)
    assert world.feed(page(START + 1.5, lane)).failure is None
    preempted = world.feed(page(START + 1.75, replace(lane, running=9.0, preemptions=3.0)))
    assert preempted.running == 9.0
    assert [alert.id for alert in world.snapshot().alerts] == ["backend:b:preempting"]


def test_after_missed_samples_the_first_gives_no_live_rate(world: World) -> None:
    """Tokens of an outage are not smeared over it; the next pair of samples gives a rate again."""
    world.tokens(1000, 0)
    world.tokens(1001, 100)
    world.fail(1002)
    world.fail(1003)
    view = world.tokens(1004, 400)
    assert view.generation_tps_1s is None
    assert view.generation_tps == pytest.approx(100)
    assert world.tokens(1005, 450).generation_tps_1s == pytest.approx(50)


@pytest.mark.parametrize("start_time", [None, EPOCH.timestamp() - 9000.0])
def test_what_was_counted_while_this_machine_slept_is_no_rate(world: World, start_time: float | None) -> None:
    """The monotonic clock stands while a laptop sleeps: an hour of tokens did not come in a second."""
    for second in range(60):
        world.slept_s = 3600.0 if second >= 30 else 0.0
        view = world.tokens(START + second, 100.0 * (second + world.slept_s), start_time=start_time)
    assert view.history.generation_tps.peak(0.0) == 100.0
    assert world.snapshot().events == ()


def test_another_engine_at_the_address_counts_anew(world: World) -> None:
    """Its counters are its own, also where all are higher; an event names both."""
    for second in range(30):
        engine, more = ("vllm", 0.0) if second < 15 else ("sglang", 1e6)
        lane = LaneSample("0", running=1.0, generation_tokens=more + 100.0 * second)
        view = world.feed(EngineSample(START + second, engine, (lane,)))
    assert view.history.generation_tps.peak(0.0) == 100.0
    assert [event.message for event in world.snapshot().events] == ["now SGLang (was vLLM)"]


def test_a_restart_in_a_gap_counts_from_the_new_start(world: World) -> None:
    """The new process has counted for 4 s since its start: that is the rate, and the window starts there."""
    for second in range(5):
        world.tokens(1000 + second, 1000.0 * second, start_time=world.wall(0))
    world.fail(1005)
    view = world.tokens(1015, 200, start_time=world.wall(1011))
    assert view.generation_tps == pytest.approx(50)
    assert (view.generation_tps_1s, view.restarts) == (None, 1)
    assert [event.message for event in world.snapshot().events] == ["restarted"]


@pytest.mark.parametrize("age_s", [-300.0, 0.05, 11.5])
def test_a_start_outside_the_gap_is_not_trusted(world: World, age_s: float) -> None:
    """Clocks may differ: a start before the last sample, or in the future, counts nothing."""
    lanes = [LaneSample("0", generation_tokens=n, ttft=observe([0.3] * n)) for n in (900, 500)]
    world.feed(page(1000, lanes[0], start_time=world.wall(-9999)))
    view = world.feed(page(1010, lanes[1], start_time=world.wall(1010 - age_s)))
    assert tokens_of(view) == (None, None)
    assert (view.ttft.count, view.restarts) == (None, 1)


def test_a_fall_to_little_counts_from_its_first_sample(world: World) -> None:
    """Without a start time, it is unknown since when it counts: no rate before its second sample."""
    for second in range(5):
        world.tokens(1000 + second, 10_000 + 100.0 * second)
    view = world.tokens(1005, 40)  # it began in the middle of the second
    assert tokens_of(view) == (None, None)
    assert tokens_of(world.tokens(1006, 120)) == (None, pytest.approx(80))
    assert tokens_of(world.tokens(1007, 200)) == (pytest.approx(80), pytest.approx(80))
    assert view.restarts == 1


@pytest.mark.parametrize("old_first", [True, False])
def test_a_load_balancer_is_told_once_and_never_spikes(world: World, *, old_first: bool) -> None:
    """Two servers in turn behind one address give no rates, and one event that says so.

    If the younger server answers second, it looks like a restart at first: there is one event more.
    """
    for second in range(40):
        old = (second % 2 == 0) == old_first
        tokens, start = (90_000, -5000) if old else (500, -100)
        view = world.tokens(1000 + second, tokens + 50.0 * second, start_time=world.wall(start))
        assert tokens_of(view) == (None, None)
    assert view.restarts == int(old_first)
    told = [event.message for event in world.snapshot().events]
    assert told == (["restarted", SEVERAL_SERVERS] if old_first else [SEVERAL_SERVERS])


def test_lanes_that_come_and_go_do_not_spike(world: World) -> None:
    """A new rank brings its counter's past along: only what it adds while watched counts."""

    def lane(name: str, second: int) -> LaneSample:
        return LaneSample(name, generation_tokens=1e6 + 10.0 * second)

    seen: list[float | None] = []
    for second in range(12):
        names = ["0", "1"] if 4 <= second < 8 else ["0"]
        sample = page(1000 + second, *(lane(name, second) for name in names))
        seen.append(world.feed(sample).generation_tps_1s)
    assert seen[1:] == [pytest.approx(rate) for rate in (10, 10, 10, 10, 20, 20, 20, 10, 10, 10, 10)]


@given(
    steps=st.lists(st.tuples(st.sampled_from([1.0, 1.0, 1.0, 3.0, 20.0]), st.integers(0, 2), st.booleans())),
    restarts=st.booleans(),
)
@settings(max_examples=30, deadline=None)
def test_no_rate_is_above_what_a_server_does(steps: list[tuple[float, int, bool]], *, restarts: bool) -> None:
    """Three servers of 100 tokens/s behind one address, any in turn, restarts or not: 0 to 100."""
    world = World()
    born = [-50_000.0, -300.0, -20.0]
    at = 1000.0
    for wait, which, again in steps:
        at += wait
        start = at - wait / 2
        if again and restarts and all(abs(start - other) > 1 for other in born):
            born[which] = start
        view = world.tokens(at, 100.0 * (at - born[which]), start_time=world.wall(born[which]))
        for rate in (view.generation_tps, view.generation_tps_1s):
            assert rate is None or 0 <= rate <= 100.0 + 1e-6


@pytest.mark.parametrize(("life_s", "outage_s"), [(5, 1), (12, 8)])
def test_a_crash_loop_without_start_times_is_restarts(world: World, life_s: int, outage_s: int) -> None:
    """Equal lives pass the same counters at the same age: each fall is a restart, and nothing else."""
    at = 1000.0
    for _ in range(5):
        for second in range(life_s):
            view = world.lane(at := at + 1.0, generation_tokens=40.0 * second, prompt_tokens=100.0 * second)
        for _ in range(outage_s - 1):
            world.fail(at := at + 1.0)
    assert view.restarts == 4
    said = [event.message for event in world.snapshot().events]
    assert SEVERAL_SERVERS not in said


# Speculative decoding is called a loss only where the server was seen with and without it.

RUNNING = 16.0


class Drafting:
    """A server with 16 requests and 20 steps a second, fed second by second."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.at = 1000.0
        self.drafts = self.accepted = self.tokens = self.steps = self.prompt = 0.0

    def play(
        self, seconds: int, *, drafts: bool, tps: float, accepted: float = 0.5, prompt_tps: float = 0.0
    ) -> BackendView:
        """Feed pages for `seconds` seconds; return the last view."""
        for _ in range(seconds):
            self.at += 1
            new = 20 * RUNNING if drafts else 0.0
            self.drafts, self.accepted = self.drafts + new, self.accepted + accepted * new
            self.tokens, self.prompt = self.tokens + tps, self.prompt + prompt_tps
            self.steps += 20
            self.world.lane(
                self.at,
                running=RUNNING,
                waiting=0.0,
                prompt_tokens=self.prompt,
                generation_tokens=self.tokens,
                spec_drafts=self.drafts,
                spec_draft_tokens=3 * self.drafts,
                spec_accepted_tokens=self.accepted,
                step_tokens=Histogram((math.inf,), (self.steps,), 4 * RUNNING * self.steps),
            )
            self.world.store.judge()
        return self.world.view()


def test_drafts_that_slow_the_server_are_named_with_both_rates(world: World) -> None:
    """The finding has 400 tok/s with drafts and 600 without, at the same number of requests."""
    drafting = Drafting(world)
    assert drafting.play(60, drafts=True, tps=400.0).spec_verdict is None
    view = drafting.play(60, drafts=False, tps=600.0)
    assert view.spec_verdict == (
        "drafts cost more than they give: 400 tok/s with them, 600 without, at 16 requests"
    )


@pytest.mark.parametrize(("plain", "prompt_tps"), [(420.0, 0.0), (600.0, 5000.0)])
def test_without_a_clear_difference_nothing_is_said(world: World, plain: float, prompt_tps: float) -> None:
    """Not for 5 % more, not for less, and not while prompts hide the difference."""
    drafting = Drafting(world)
    drafting.play(60, drafts=True, tps=400.0, prompt_tps=prompt_tps)
    assert drafting.play(60, drafts=False, tps=plain, prompt_tps=prompt_tps).spec_verdict is None
