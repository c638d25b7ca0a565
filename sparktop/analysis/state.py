"""One word for a backend, and the rule that gave it."""

from __future__ import annotations

from dataclasses import dataclass

from sparktop.model.failure import Failure, FailureKind
from sparktop.model.snapshot import BackendState
from sparktop.model.targets import StateThresholds


@dataclass(frozen=True, slots=True)
class LoadFigures:
    """What the rule looks at."""

    seen: bool = False
    """True once there was any answer."""
    failure: Failure | None = None
    """Of the newest poll."""
    asleep: bool | None = None
    preemptions: float | None = None
    """Counted in the window."""
    window_s: float = 0.0
    """The time that `preemptions` and `waiting_share` really span."""
    kv_cache_percent: float | None = None
    waiting: float | None = None
    waiting_share: float | None = None
    """Share of the window's samples with requests waiting, 0 to 1."""
    running: float | None = None
    slots: int | None = None
    note: str | None = None
    """Why the server tells no more, in its source's words."""


def backend_state(load: LoadFigures, thresholds: StateThresholds) -> tuple[BackendState, str]:
    """Give the first state of the list whose rule holds, and that rule in words with its numbers.

    The order: unreachable, loading, asleep, preempting, KV-full, queueing, busy, bored, idle.
    """
    if load.failure is not None:
        return _failed(load.failure)
    if not load.seen:
        return BackendState.CONNECTING, "no answer yet"
    if load.asleep:
        return BackendState.ASLEEP, "the engine sleeps"
    if load.running is None and load.note is not None:
        return _short_of_room(load, thresholds) or (BackendState.UNKNOWN, load.note)
    return _short_of_room(load, thresholds) or _by_running(load.running, load.slots, thresholds)


def _short_of_room(load: LoadFigures, thresholds: StateThresholds) -> tuple[BackendState, str] | None:
    window = f"the last {max(load.window_s, 1.0):.0f} s"
    if load.preemptions is not None and load.preemptions > 0:
        plural = "" if load.preemptions == 1 else "s"
        return BackendState.PREEMPTING, f"{load.preemptions:.0f} preemption{plural} in {window}"
    kv_percent = load.kv_cache_percent
    if kv_percent is not None and kv_percent >= thresholds.kv_full_percent:
        rule = f"KV cache {kv_percent:.1f} % full, at or above {thresholds.kv_full_percent:g} %"
        return BackendState.KV_FULL, rule
    if load.waiting_share and load.waiting_share >= thresholds.queueing_share:
        now = "" if load.waiting is None else f", {load.waiting:.0f} now"
        return BackendState.QUEUEING, f"requests waited in {100 * load.waiting_share:.0f} % of {window}{now}"
    return None


def _failed(failure: Failure) -> tuple[BackendState, str]:
    if failure.kind is FailureKind.LOADING:
        return BackendState.LOADING, failure.message
    if failure.kind is FailureKind.METRICS_DISABLED:
        # It serves; it only tells nothing. "Unreachable" would send people after the wrong fault.
        return BackendState.UNKNOWN, failure.message
    return BackendState.UNREACHABLE, failure.message


def _by_running(
    running: float | None, slots: int | None, thresholds: StateThresholds
) -> tuple[BackendState, str]:
    if running is None:
        return BackendState.UNKNOWN, "it does not tell how many requests run"
    if running <= 0:
        return BackendState.IDLE, "no request runs"
    if slots:
        enough = slots * thresholds.busy_share
        rule = f"running {running:.0f} of {slots} slots, {100 * thresholds.busy_share:g} % is busy"
    else:
        enough = thresholds.busy_running
        rule = f"running {running:.0f}, {enough:g} is busy (slots unknown)"
    return (BackendState.BUSY if running >= enough else BackendState.BORED), rule
