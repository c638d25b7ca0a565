"""The state of a backend, the verdict line that is read first, and groups of hundreds of servers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from sparktop.analysis.state import LoadFigures, backend_state, limit_to_show
from sparktop.analysis.summary import Summary, verdict
from sparktop.analysis.wall import STALE, Top, Wall, wall_of
from sparktop.model.balance import Balance, BalanceWord
from sparktop.model.event import Alert, Progress, ProgressView, Severity
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import GpuReading, NodeSample
from sparktop.model.router import Scrape, Sum
from sparktop.model.snapshot import (
    BackendState,
    BackendView,
    Limit,
    LimitKind,
    NodeView,
    Snapshot,
    SpeedState,
)
from sparktop.model.snapshot import BackendState as Is
from sparktop.model.targets import StateThresholds

EVERYTHING = LoadFigures(
    seen=True,
    failure=Failure(FailureKind.TIMEOUT, "no answer within 2 s", 0.0),
    asleep=True,
    preemptions=3.0,
    window_s=10.0,
    kv_cache_percent=99.0,
    waiting=4.0,
    waiting_share=1.0,
    running=12.0,
    slots=16,
)
LIMITS = StateThresholds()


def test_the_words_come_in_serving_s_order() -> None:
    """If several states apply, the most severe is shown; without it, the next one."""
    load = EVERYTHING
    for word, cure in (
        (Is.UNREACHABLE, {"failure": None}),
        (Is.ASLEEP, {"asleep": False}),
        (Is.PREEMPTING, {"preemptions": 0.0}),
        (Is.KV_FULL, {"kv_cache_percent": 97.9}),
        (Is.QUEUEING, {"waiting_share": 0.4}),
        (Is.BUSY, {"waiting": 0.0, "running": 3.0}),
        (Is.BORED, {"running": 0.0}),
        (Is.IDLE, {"running": None}),
        (Is.UNKNOWN, {"seen": False}),
        (Is.CONNECTING, {}),
    ):
        assert backend_state(load, LIMITS).state is word
        load = replace(load, **cure)


@pytest.mark.parametrize(
    ("load", "word", "rule"),
    [
        (
            {"failure": Failure(FailureKind.NOT_FOUND, "404: no such page", 0.0)},
            Is.UNKNOWN,
            "404: no such page",
        ),
        ({"running": 3.0, "slots": 8}, Is.BORED, "running 3 of 8 slots; busy from 4"),
        ({"running": 4.0, "slots": 8}, Is.BUSY, "running 4 of 8 slots; busy from 4"),
        ({"running": 8.0}, Is.BUSY, "running 8; busy from 8 (slots unknown)"),
        (
            {"running": 122.0, "slots": 256, "gpu_percent": 97.0},
            Is.BUSY,
            "running 122 of 256 slots, GPU 97 % busy (mean of up to 10 s)",
        ),
        (
            {"running": 22.0, "running_mean": 25.5, "slots": 48},
            Is.BUSY,
            "running 22 of 48 slots, 25.5 on average; busy from 24",
        ),
        (
            {"running": 22.0, "running_mean": 23.0, "slots": 48},
            Is.BORED,
            "running 22 of 48 slots; busy from 24",
        ),
        (
            {"running": 1.0, "waiting": 0.0, "slots": 256, "prefill_s": 12.0},
            Is.BUSY,
            "running 1 of 256 slots, prefill: no token in the last 12 s while its KV cache fills",
        ),
    ],
)
def test_busy_is_half_of_the_slots_or_work_all_the_time(load: dict[str, Any], word: Is, rule: str) -> None:
    """Half of the slots now or on average, 8 requests if they are unknown, a GPU at work, a long prompt."""
    judged = backend_state(replace(LoadFigures(seen=True, window_s=10.0), **load), LIMITS)
    assert (judged.state, judged.rule) == (word, rule)


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        ({"waiting": 0.0, "waiting_share": 0.5, "running": 2.0}, (Is.QUEUEING, 10.0)),
        ({"running": 0.0, "running_mean": 5.0, "slots": 8}, (Is.BUSY, 10.0)),
        ({"running": 0.0, "running_mean": 0.4, "slots": 8}, (Is.BORED, 10.0)),
        ({"running": 0.0, "running_mean": 0.0, "tokens_moved": True}, (Is.BORED, 10.0)),
        ({"running": 0.0, "running_mean": 0.0}, (Is.IDLE, None)),
    ],
)
def test_a_word_that_this_moment_contradicts_carries_its_window(
    load: dict[str, Any], expected: tuple[Is, float | None]
) -> None:
    """If the newest sample contradicts the state, the state names its window."""
    judged = backend_state(replace(LoadFigures(seen=True, window_s=10.0), **load), LIMITS)
    assert (judged.state, judged.window_s) == expected
    assert judged.window_s is None or "10 s" in judged.rule


def test_a_long_step_is_busy_and_a_standstill_is_neither_busy_nor_bored() -> None:
    """A long step makes a server busy; a standstill is stated as such, neither busy nor bored."""
    running = LoadFigures(seen=True, running=1.0, running_mean=1.0, slots=48)
    assert backend_state(running, LIMITS).state is Is.BORED
    long_step = ProgressView(Progress.LONG_STEP, 30.0, "GPU works")
    busy = backend_state(replace(running, progress=long_step), LIMITS).state
    view = BackendView("a", "http://a", "g", state=busy, progress=long_step)
    assert (busy, view.state_text) == (Is.BUSY, "long step")
    still = backend_state(replace(running, progress=ProgressView(Progress.STILL, 12.0, "")), LIMITS)
    assert (still.state, still.rule) == (Is.STILL, "nothing has moved for 12 s")


# The verdict line, which a user reads first: the worst condition, what to try, and the key for details.

WHEN = datetime(2026, 3, 1, tzinfo=UTC)
SWING = Balance(
    "proxy",
    ("a", "b"),
    word=BalanceWord.OSCILLATING,
    word_now=BalanceWord.OSCILLATING,
    period_s=10.2,
    lost_percent=26.4,
    router="proxy",
    hint="try simple-shuffle or round-robin (power-of-two choices does not help with two backends)",
)


def alert(alert_id: str, severity: Severity = Severity.WARNING, message: str = "said") -> Alert:
    return Alert(alert_id, severity, alert_id.split(":")[1], message, WHEN)


def shown(*alerts: Alert, balance: tuple[Balance, ...] = (), **more: object) -> Summary:
    values: dict[str, object] = {"backends": (BackendView("a", "http://a:1", "g", state=BackendState.BUSY),)}
    return verdict(Snapshot(WHEN, 1.0, 1.0, 2.0, alerts=alerts, balance=balance, **(values | more)))  # type: ignore[arg-type]  # each test gives its own


def test_an_oscillating_router_says_what_it_costs_and_what_to_try() -> None:
    """An oscillating router is shown with its loss, the first clause of the hint, and the key for details."""
    found = shown(alert("balance:proxy:oscillating"), balance=(SWING,))
    assert found == Summary(
        Severity.WARNING,
        "proxy is oscillating, −26 % tok/s",
        "oscillating −26 % tok/s",
        "try simple-shuffle or round-robin",
        "w",
        about="balance:proxy:oscillating",
    )
    assert found.short_hint == "try simple-shuffle"


@pytest.mark.parametrize(("period", "short"), [(10.2, "oscillating every 10 s"), (None, "oscillating")])
def test_what_is_not_known_is_not_said(period: float | None, short: str) -> None:
    """An unknown loss is left out, never shown as 0."""
    balance = replace(SWING, lost_percent=None, period_s=period)
    assert shown(alert("balance:proxy:oscillating"), balance=(balance,)).short == short


def test_a_cause_comes_before_its_effect() -> None:
    """An engine hangs because its rank has ended: the top line names the end, whichever alert is older."""
    hung = alert("backend:a:stuck", Severity.CRITICAL, "stuck with 9 running")
    ended = alert("backend:a:dead-rank", Severity.CRITICAL, "worker TP1 (pid 41) ended")
    assert shown(hung, ended).about == shown(ended, hung).about == ended.id
    assert shown(hung).about == hung.id


def test_the_most_severe_comes_first_then_what_can_be_mended() -> None:
    """The most severe alert comes first; of equal ones, one with a hint comes before an older one."""
    swing, down = alert("balance:proxy:oscillating"), alert("backend:a:unreachable", Severity.CRITICAL)
    hot = alert("node:n:thermal")
    assert shown(down, hot, swing, balance=(SWING,)).short == "a down"
    assert shown(hot, swing, balance=(SWING,)).key == "w"
    assert shown(hot, swing, balance=(replace(SWING, hint=None),)).short == "n hot GPU"


@pytest.mark.parametrize(
    ("sentence", "end"),
    [
        ("1.5 of 64 GiB left", ""),
        ("9000 on a vs. 1500 on b", ". "),
        ("approx. 2 links, e.g. p0.1 of spark-a.lan, i.e. all", ". Look there"),
        ("rank 1 has ended", ": its log: no memory"),
    ],
)
def test_only_the_first_sentence_of_an_alert_is_in_the_verdict(sentence: str, end: str) -> None:
    """The full stop of an abbreviation, a number or a host's name ends no sentence."""
    found = shown(alert("node:short:headroom", message=f"{sentence}{end}"))
    assert found.words == f"short: {sentence}"


def test_every_alert_has_words_and_a_key() -> None:
    """An alert without a text of its own is named by its condition."""
    full = shown(alert("backend:a:kv-full", message="98 % of the KV cache or more is used"))
    assert full == Summary(
        Severity.WARNING,
        "a: 98 % of the KV cache or more is used",
        "a KV cache full",
        "fewer requests at once, or shorter ones",
        "z",
        "a",
        about="backend:a:kv-full",
    )
    assert full.short_hint == "fewer requests at once"
    falls = "memory left will be below 8 GiB in 2 min (−5.4 GiB/min)"
    left = [("headroom-limit", falls), ("headroom", "7.5 GiB of memory left; kexec handover holds 9.1 GiB")]
    tops = [shown(alert(f"node:n:{kind}", message=message)) for kind, message in left]
    assert [top.words for top in tops] == [f"n: {falls}", f"n: {left[1][1]}"]
    assert [top.short for top in tops] == ["n memory runs low", "n: 7.5 GiB of memory left"]
    assert shown(alert("node:n:gpu-lost/3")).short == "n GPU lost"
    assert shown(alert("node:n:brand-new")).short == "n brand new"
    assert shown(alert("node:n:sensors", message="x" * 200)).words == "n: hot sensor"


@pytest.mark.parametrize(
    ("state", "waiting", "severity", "words"),
    [
        (BackendState.BUSY, 0.0, None, "all well: 1 busy"),
        (BackendState.QUEUEING, 4.0, Severity.INFO, "a has a queue"),
        (BackendState.CONNECTING, None, Severity.INFO, "1 connecting"),
    ],
)
def test_without_an_alert_the_states_are_counted(
    state: BackendState, waiting: float | None, severity: Severity | None, words: str
) -> None:
    """Without an alert the states are counted; before the first answer it does not say "all well"."""
    found = shown(backends=(BackendView("a", "http://a:1", "g", state=state, waiting=waiting),))
    assert (found.severity, found.words) == (severity, words)


@pytest.mark.parametrize(
    "balance", [(), (replace(SWING, word=BalanceWord.UNKNOWN, word_now=BalanceWord.UNKNOWN, too_few=True),)]
)
def test_a_remark_is_said_in_place_of_all_well(balance: tuple[Balance, ...]) -> None:
    """What an alert of the least severity says of a busy server is beside the states."""
    busy = BackendView("a", "http://a:1", "g", state=BackendState.BUSY, running=3.0)
    remark = alert("backend:a:draft-length", Severity.INFO, "drafts cost 44 % (likely)")
    found = shown(remark, balance=balance, backends=(busy,))
    assert (found.severity, found.words) == (Severity.INFO, "1 busy; a: drafts cost 44 % (likely)")


def test_a_failed_poll_and_an_empty_board_are_said() -> None:
    """A failed poll is named before its alert, and a board without servers says that none was found."""
    failure = Failure(FailureKind.REFUSED, "connection refused", 1.0)
    view = BackendView("a", "http://a:1", "g", failure=failure)
    assert shown(backends=(view,)).words == "a does not answer"
    assert shown(backends=(), searching=("localhost",)).words == "no inference server found"
    assert shown(backends=()).words == "no backend to watch"
    busy = replace(view, failure=None, state=BackendState.BUSY)
    beside = shown(backends=(busy,), searching=("nosuchhost",))
    assert (beside.severity, beside.words) == (Severity.INFO, "1 busy; no server found on nosuchhost yet")


@pytest.mark.parametrize(
    ("word", "now", "words"),
    [
        (BalanceWord.UNKNOWN, BalanceWord.UNKNOWN, "1 busy; proxy: load balance unknown"),
        (BalanceWord.UNKNOWN, BalanceWord.OSCILLATING, "1 busy; proxy: perhaps oscillating"),
        (BalanceWord.BALANCED, BalanceWord.UNEVEN, "1 busy; proxy: perhaps uneven"),
    ],
)
def test_nothing_is_well_before_the_balance_is_known(word: BalanceWord, now: BalanceWord, words: str) -> None:
    """A pending verdict, or one that the newest window contradicts, is not "all well"."""
    loaded = BackendView("a", "http://a:1", "g", state=BackendState.BUSY, running=3.0)
    group = replace(SWING, word=word, word_now=now)
    found = shown(balance=(group,), backends=(loaded,))
    assert (found.severity, found.words) == (Severity.INFO, words)
    watched = shown(balance=(replace(group, known_in_s=23.2),), backends=(loaded,)).words
    assert watched == words.replace("load balance unknown", "verdict on balance in 24 s")
    settled = replace(SWING, word=BalanceWord.BALANCED, word_now=BalanceWord.BALANCED)
    assert shown(balance=(settled,), backends=(loaded,)).words == "all well: 1 busy"
    resting = replace(loaded, running=0.0, state=BackendState.IDLE)
    assert shown(balance=(group,), backends=(resting,)).words == "all well: 1 idle"


@pytest.mark.parametrize("kind", LimitKind)
def test_an_idle_server_has_only_the_limit_that_nobody_sends_requests(kind: LimitKind) -> None:
    """Neither a limit of work, which it no longer has, nor one that is not known; a busy one has each."""
    limit = Limit(kind, "said")
    sends = kind in {LimitKind.CLIENT, LimitKind.CLIENT_OR_ROUTER, LimitKind.ROUTER}
    view = BackendView("b", "http://b:8000", "")
    assert limit_to_show(limit, replace(view, state=Is.IDLE)) == (limit if sends else None)
    assert limit_to_show(limit, replace(view, state=Is.BUSY)) is limit


def test_a_sweep_s_own_load_is_no_verdict_on_the_router() -> None:
    """The top line does not name the router, which the sweep may pass by, nor a key for what is left out."""
    swept = BackendView("a", "http://a:1", "g", state=BackendState.BORED, running=3.0, in_sweep=True)
    starved = replace(SWING, word=BalanceWord.STARVED, word_now=BalanceWord.STARVED, in_sweep=True)
    found = shown(balance=(starved,), backends=(swept,))
    assert found == Summary(Severity.INFO, "1 bored; balance during the sweep: starved", "1 bored")
    other = replace(starved, group="q", word=BalanceWord.BALANCED)
    assert "; balance of proxy during" in shown(balance=(starved, other), backends=(swept,)).words
    few = replace(SWING, word=BalanceWord.UNKNOWN, word_now=BalanceWord.UNKNOWN, too_few=True)
    assert shown(balance=(few,), backends=(replace(swept, in_sweep=False),)).key == ""


# Groups of hundreds of servers: order, outdated figures, filter, lists.

REFUSED = Failure(FailureKind.REFUSED, "connection refused", 90.0)


def server(name: str, group: str, **fields: object) -> BackendView:
    """Return a server that answers."""
    view = BackendView(name, f"http://{name}:8000", group, age_s=0.5, state=BackendState.BUSY)
    return replace(view, **fields)  # type: ignore[arg-type]  # each test names fields


def wall(*views: BackendView, words: str = "", **fields: object) -> Wall:
    """Return the wall of these servers."""
    shown = Snapshot(WHEN, 100.0, 1.0, 2.0, backends=views, **fields)  # type: ignore[arg-type]  # as above
    return wall_of(shown, words)


def names(found: Wall) -> list[str]:
    """Return the names of the groups in their order."""
    return [group.name for group in found.groups]


def test_down_then_a_bad_verdict_then_full_then_waiting() -> None:
    """Groups come in the order down, bad verdict, full, waiting; equal ones by name."""
    bad = Balance("swings", ("s",), BalanceWord.OSCILLATING, BalanceWord.OSCILLATING, router="proxy")
    found = wall(
        server("a", "calm"),
        server("w", "waits", waiting=9.0),
        server("f", "full", state=BackendState.KV_FULL),
        server("s", "swings"),
        server("d", "dead", state=BackendState.UNREACHABLE, failure=REFUSED),
        server("b", "also calm"),
        balance=(bad,),
    )
    assert names(found) == ["dead", "swings", "full", "waits", "also calm", "calm"]


def test_old_figures_are_stale_and_in_no_sum_or_list() -> None:
    """After three polls and 5 s, or after two and a half scrapes; of others the 100 worst are listed."""
    found = wall(
        server("fresh", "g", age_s=4.0, running=1.0, waiting=2.0),
        server("fuller", "g", age_s=4.0, running=1.0, waiting=3.0),
        server("old", "g", age_s=6.0, running=4.0, waiting=9.0),
        server("scraped", "g", age_s=30.0, running=1.0, waiting=0.0, scrape=Scrape("main", 15.0)),
        server("late", "g", age_s=40.0, running=4.0, waiting=9.0, scrape=Scrape("main", 15.0)),
    )
    (group,) = found.groups
    states = {one.server.name: one.state for one in group.servers}
    assert list(states) == ["old", "late", "fuller", "fresh", "scraped"]
    assert {name for name, state in states.items() if state == STALE} == {"old", "late"}
    assert group.running == Sum(3.0, 3, 5)
    assert [waiting for _, waiting in found.tops[Top.WAITING]] == [3.0, 2.0]
    many = wall(*(server(f"s{number}", "g", waiting=number + 1.0) for number in range(150)))
    assert [waiting for _, waiting in many.tops[Top.WAITING]] == list(range(150, 50, -1))


def test_unknown_figures_stay_unknown() -> None:
    """Without a known value a sum is None, with a server that is down a lower bound, as in the top line."""
    silent = wall(server("a", "g"), server("b", "g")).groups[0]
    assert (silent.kv_percent, silent.ttft_p95_s) == (None, None)
    assert (silent.running, silent.generation_tps) == (Sum(None, 0, 2), Sum(None, 0, 2))
    down = server("a", "g", state=BackendState.UNREACHABLE, running=30.0)
    assert wall(down, server("b", "g", running=2.0)).groups[0].running == Sum(2.0, 1, 2)


@pytest.mark.parametrize(
    ("words", "kept"), [("GREEN", {"a1", "b1"}), ("queueing", {"b1"}), ("green idle", set())]
)
def test_the_filter_finds_name_group_model_and_state(words: str, kept: set[str]) -> None:
    """All words of the filter must occur, in any letter case; the total before filtering stays known."""
    found = wall(
        server("a1", "green", url="http://alpha"),
        server("b1", "green", model="Qwen3", state=BackendState.QUEUEING),
        server("c1", "red"),
        words=words,
    )
    assert {one.server.name for group in found.groups for one in group.servers} == kept
    assert (found.count, found.total) == (len(kept), 3)


def node(name: str, use: float | None = 50.0, **fields: object) -> NodeView:
    """Return a machine with a GPU."""
    sample = NodeSample(99.0, gpus=(GpuReading(0, utilization_percent=use, sm_clock_mhz=711),))
    return replace(NodeView(name, "agent", sample, age_s=1.0), **fields)  # type: ignore[arg-type]  # as above


def test_machines_stand_with_the_worst_first() -> None:
    """Machines come worst first, by alert, clock and use; those with a slow clock have a list."""
    nodes = (
        node("idle", 0.0),
        node("mute", None),
        node("busy"),
        node("slow", speed=SpeedState("slow clock", "711 of 3003 MHz")),
        node("short"),
        node("gone", failure=REFUSED),
    )
    short = alert("node:short:headroom", Severity.CRITICAL)
    found = wall(nodes=nodes, alerts=(short,))
    worst = [("gone", "unreachable"), ("short", "low memory"), ("slow", "slow clock")]
    rest = [("busy", "busy"), ("idle", "idle"), ("mute", "unknown")]
    assert [(one.name, one.state) for one in found.nodes] == worst + rest
    assert [one.name for one in found.slow_nodes] == ["slow"]
