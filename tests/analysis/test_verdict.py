"""The verdict line, which a user reads first: the worst condition, what to try, and the key for details."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from sparktop.analysis.state import Verdict, verdict
from sparktop.model.balance import Balance, BalanceWord
from sparktop.model.event import Alert, Severity
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.snapshot import BackendState, BackendView, NodeView, Snapshot, SpeedState

WHEN = datetime(2026, 3, 1, tzinfo=UTC)
SWING = Balance(
    "proxy",
    ("a", "b"),
    word=BalanceWord.OSCILLATING,
    period_s=10.2,
    lost_percent=26.4,
    router="proxy",
    hint="try simple-shuffle or round-robin (power-of-two choices does not help with two backends)",
)


def alert(alert_id: str, severity: Severity = Severity.WARNING, message: str = "said") -> Alert:
    return Alert(alert_id, severity, alert_id.split(":")[1], message, WHEN)


def shown(*alerts: Alert, balance: tuple[Balance, ...] = (), **more: object) -> Verdict:
    values: dict[str, object] = {"backends": (BackendView("a", "http://a:1", "g", state=BackendState.BUSY),)}
    return verdict(Snapshot(WHEN, 1.0, 1.0, 2.0, alerts=alerts, balance=balance, **(values | more)))  # type: ignore[arg-type]  # each test gives its own


def test_an_oscillating_router_says_what_it_costs_and_what_to_try() -> None:
    """An oscillating router is shown with its loss, the first clause of the hint, and the key for details."""
    found = shown(alert("balance:proxy:oscillating"), balance=(SWING,))
    assert found == Verdict(
        Severity.WARNING,
        "proxy is oscillating, −26 % tokens",
        "oscillating −26 % tokens",
        "try simple-shuffle or round-robin",
        "w",
        about="balance:proxy:oscillating",
    )
    assert found.short_hint == "try simple-shuffle"


@pytest.mark.parametrize(
    ("lost", "period", "short"),
    [
        (None, 10.2, "oscillating every 10 s"),
        (0.4, 10.2, "oscillating every 10 s"),
        (None, None, "oscillating"),
    ],
)
def test_what_is_not_known_is_not_said(lost: float | None, period: float | None, short: str) -> None:
    """An unknown loss is left out, never shown as 0."""
    balance = replace(SWING, lost_percent=lost, period_s=period)
    assert shown(alert("balance:proxy:oscillating"), balance=(balance,)).short == short


def test_the_most_severe_comes_first_then_what_can_be_mended() -> None:
    """The most severe alert comes first; of equal ones, one with a hint comes before an older one."""
    swing, down = alert("balance:proxy:oscillating"), alert("backend:a:unreachable", Severity.CRITICAL)
    hot = alert("node:n:thermal")
    assert shown(down, hot, swing, balance=(SWING,)).short == "a down"
    assert shown(hot, swing, balance=(SWING,)).key == "w"
    assert shown(hot, swing, balance=(replace(SWING, hint=None),)).short == "n near its thermal limit"


def test_every_alert_has_words_and_a_key() -> None:
    """An alert without a text of its own is named by its condition."""
    assert shown(alert("backend:a:kv-full", message="98 % of the KV cache or more is used")) == Verdict(
        Severity.WARNING,
        "a: 98 % of the KV cache or more is used",
        "a KV cache full",
        "fewer or shorter requests",
        "z",
        "a",
        about="backend:a:kv-full",
    )
    assert shown(alert("node:n:gpu-lost/3")).short == "n GPU lost"
    assert shown(alert("node:n:brand-new")).short == "n brand new"
    assert shown(alert("node:n:sensors", message="x" * 200)).words == "n: sensors"


def test_a_slow_clock_names_its_fix() -> None:
    """The hint on a slow clock is the first step of the fix in the node's state."""
    node = NodeView("n", "local", speed=SpeedState("slow clock", fix="use another adapter, then wait"))
    message = "slow clock: 713 of 3003 MHz. Likely cause: power. Fix: all of it"
    found = shown(alert("node:n:slow-clock", message=message), nodes=(node,))
    assert (found.words, found.short_hint) == ("n: slow clock: 713 of 3003 MHz", "use another adapter")


@pytest.mark.parametrize(
    ("state", "waiting", "severity", "words"),
    [
        (BackendState.BUSY, 0.0, None, "all well: 1 busy"),
        (BackendState.QUEUEING, 4.0, Severity.INFO, "a has a queue"),
        (BackendState.BORED, 4.0, Severity.INFO, "a has a queue"),
        (BackendState.CONNECTING, None, Severity.INFO, "1 connecting"),
        (BackendState.UNKNOWN, None, Severity.INFO, "1 unknown"),
    ],
)
def test_without_an_alert_the_states_are_counted(
    state: BackendState, waiting: float | None, severity: Severity | None, words: str
) -> None:
    """Without an alert the states are counted; before the first answer it does not say "all well"."""
    found = shown(backends=(BackendView("a", "http://a:1", "g", state=state, waiting=waiting),))
    assert (found.severity, found.words) == (severity, words)


@pytest.mark.parametrize(
    ("waiting", "running", "words"),
    [
        ((4.0, 0.0), 2.0, "only a has a queue"),
        ((4.0, 0.0), 16.0, "a is full: 16 of 16 slots run"),
        ((4.0, 1.0), 16.0, "longest queue: 4 at a"),
    ],
)
def test_a_queue_has_its_place_and_no_number_twice(
    waiting: tuple[float, ...], running: float, words: str
) -> None:
    """Of waiting requests the line states where or why, because the header has their number."""
    views = tuple(
        BackendView(name, "http://a:1", "g", state=BackendState.BUSY, waiting=wait, running=running, slots=16)
        for name, wait in zip("ab", waiting, strict=True)
    )
    assert shown(backends=views).words == words


def test_a_swing_without_an_alert_is_not_well() -> None:
    """A swing without an alert (during a sweep) is named, as the panel shows it in red."""
    group = Balance("proxy", ("a", "b"), word=BalanceWord.OSCILLATING, router="proxy")
    views = tuple(BackendView(name, "http://a:1", "g", state=BackendState.BUSY) for name in "ab")
    found = shown(backends=views, balance=(group,))
    assert (found.severity, found.words, found.key) == (Severity.INFO, "proxy is oscillating", "w")
    unrouted = replace(group, router=None)
    assert shown(backends=views, balance=(unrouted,)).words == "all well: 2 busy"


def test_a_failed_poll_and_an_empty_board_are_said() -> None:
    """A failed poll is named before its alert, and a board without servers says that none was found."""
    failure = Failure(FailureKind.REFUSED, "connection refused", 1.0)
    view = BackendView("a", "http://a:1", "g", failure=failure)
    assert shown(backends=(view,)).words == "a does not answer"
    assert shown(backends=(), searching=("localhost",)).words == "no inference server found yet"
    assert shown(backends=()).words == "no backend to watch"


@pytest.mark.parametrize(
    ("word", "now", "words"),
    [
        (BalanceWord.UNKNOWN, BalanceWord.UNKNOWN, "1 busy; proxy: balance not known yet"),
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
    settled = replace(SWING, word=BalanceWord.BALANCED, word_now=BalanceWord.BALANCED)
    assert shown(balance=(settled,), backends=(loaded,)).words == "all well: 1 busy"
    resting = replace(loaded, running=0.0, state=BackendState.IDLE)
    assert shown(balance=(group,), backends=(resting,)).words == "all well: 1 idle"


def test_the_load_of_a_sweep_is_neither_well_nor_a_fault() -> None:
    """During a sweep the states of servers and a swing are named, and never "all well"."""
    view = BackendView("a", "http://a:1", "g", state=BackendState.BORED, in_sweep=True)
    assert shown(backends=(view,)).words == "1 bored"
    swing = replace(SWING, in_sweep=True)
    assert shown(backends=(view,), balance=(swing,)).words == "1 bored; proxy: oscillating (sweep)"


def test_nothing_is_well_while_the_balance_still_covers_a_sweep() -> None:
    """After a sweep the balance may still cover it, while the states are current: not "all well"."""
    view = BackendView("a", "http://a:1", "g", state=BackendState.IDLE)
    swing = replace(SWING, in_sweep=True)
    assert shown(backends=(view,), balance=(swing,)).words == "1 idle; proxy: oscillating (sweep)"
    even = replace(SWING, word=BalanceWord.BALANCED, word_now=BalanceWord.BALANCED, in_sweep=True)
    assert shown(backends=(view,), balance=(even,)).words == "all well: 1 idle"
    open_ = replace(even, word_now=BalanceWord.OSCILLATING)
    assert shown(backends=(view,), balance=(open_,)).words == "1 idle"
