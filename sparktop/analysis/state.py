"""The states of servers: which word stands for what a server does, and the rule with its numbers."""

from __future__ import annotations

import math

from msgspec import Struct

from sparktop.analysis.bandwidth import FEW_READS_PERCENT
from sparktop.graphics.numbers import count_words
from sparktop.model.event import Progress, ProgressView
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.router import FleetServer
from sparktop.model.snapshot import BackendState, BackendView, Limit, LimitKind
from sparktop.model.targets import StateThresholds

# A state may be judged over the last seconds while the values shown beside it are current: requests waited
# in most of these seconds, but none waits now. Such a state carries the length of its time window, so that
# a reader never sees "queueing" beside 0 waiting, or "idle" beside a token rate, without an explanation.


RECENT_S = 10.0
"""Second, shorter window: what a server does now. Its state is judged over it, too."""
GRAVITY = (
    BackendState.UNREACHABLE,
    BackendState.ENGINE_DEAD,
    BackendState.STUCK,
    BackendState.SUSPECT,
    BackendState.PREEMPTING,
    BackendState.KV_FULL,
    BackendState.STILL,
    BackendState.QUEUEING,
    BackendState.STALE,
    BackendState.LOADING,
    BackendState.CONNECTING,
    BackendState.BUSY,
    BackendState.BORED,
    BackendState.IDLE,
    BackendState.ASLEEP,
    BackendState.UNKNOWN,
)
"""The states of servers, the worst first: the order of walls, and of lists that are sorted by state."""
_LEAST_WINDOW_S = 1.0
"""A shorter window is shown as this many seconds; one of a single sample has no length."""
_LEAST_QUEUED = 0.5
"""Part of the state's window that must be known before requests that no longer wait are called a queue."""
_FAILED = {
    FailureKind.LOADING: BackendState.LOADING,
    FailureKind.ENGINE_DEAD: BackendState.ENGINE_DEAD,
    # It answers but reports no metrics: "unreachable" would suggest the wrong fault.
    **dict.fromkeys(
        (
            FailureKind.METRICS_DISABLED,
            FailureKind.OTHER_PROGRAM,
            FailureKind.NOT_FOUND,
            FailureKind.UNAUTHORIZED,
            FailureKind.REDIRECT,
            FailureKind.TOO_LARGE,
            FailureKind.MALFORMED,
            FailureKind.ROUTER,
        ),
        BackendState.UNKNOWN,
    ),
    FailureKind.LATE: BackendState.STALE,
}
"""The state of a backend by the failure of its newest poll; any other failure makes it unreachable."""

_TOO_LITTLE_SENT = frozenset({LimitKind.CLIENT, LimitKind.CLIENT_OR_ROUTER})
_OF_DECODING = frozenset({LimitKind.BANDWIDTH, LimitKind.DECODE})
_AT_WORK = frozenset(LimitKind) - {*_TOO_LITTLE_SENT, LimitKind.ROUTER, LimitKind.UNKNOWN}
"""Limits of an engine that computes all the time, however few requests run: it is busy, not bored."""
_STOPPED = {
    Progress.STILL: BackendState.STILL,
    Progress.SUSPECT: BackendState.SUSPECT,
    Progress.STUCK: BackendState.STUCK,
}
"""The state of a backend by what is known of its standstill."""
USUAL = StateThresholds()
_LOADED = {BackendState.QUEUEING, BackendState.BUSY}
_AT_REST = {BackendState.BORED, BackendState.IDLE}
"""States that an engine in a long step does not have: it is busy."""


class LoadFigures(Struct, frozen=True):
    """The values of one backend that its state is judged by; None for a value that is unknown."""

    seen: bool = False
    """True once the backend has answered any poll."""
    failure: Failure | None = None
    """Failure of the newest poll; None if it succeeded."""
    asleep: bool | None = None
    progress: ProgressView | None = None
    """A standstill of the engine; None while it makes progress or holds no request."""
    preemptions: float | None = None
    """Preemptions in the window, or where it has one sample, in `preempted_s`."""
    preempted_s: float | None = None
    """Seconds in which preemptions were counted."""
    window_s: float = 0.0
    """Seconds from the first sample of the window to the newest."""
    kv_cache_percent: float | None = None
    swa_percent: float | None = None
    """Use of the pool of sliding-window layers, which holds tokens as the KV cache does."""
    states_percent: float | None = None
    """Use of the pool of states, one for a request, of layers such as Mamba's."""
    waiting: float | None = None
    waiting_share: float | None = None
    """Share of the window's samples with requests waiting, 0 to 1."""
    running: float | None = None
    running_mean: float | None = None
    """Mean of running requests over the window's samples."""
    tokens_moved: bool = False
    """True while a token rate that is shown beside the state is above 0."""
    slots: int | None = None
    prefill_s: float | None = None
    """Seconds up to now in which it has only computed prompts; None while it generates tokens."""
    limit: LimitKind | None = None
    """What holds the server back; None while that is not judged."""
    gpu_percent: float | None = None
    """Use of its GPUs while requests run all the time; None if they wait, or are not watched."""
    note: str | None = None
    """Why the server reports no more, as its reader explains it."""


class JudgedState(Struct, frozen=True):
    """The state of a backend with its explanation."""

    state: BackendState
    rule: str
    """The rule behind the state as a text with its numbers, or the failure's message."""
    window_s: float | None = None
    """The seconds that the state covers, where the newest values alone would give another state; else
    None."""


def backend_state(load: LoadFigures, thresholds: StateThresholds) -> JudgedState:
    """Return the first state of a backend whose rule is met, with its explanation.

    The order: unreachable, engine dead or loading (by the failure of the newest poll), connecting, asleep,
    by its standstill (stuck, "stuck?", no progress, or busy with a long step), preempting, KV-full, queueing,
    unknown (running requests are not reported), busy, bored, idle.
    """
    if load.failure is not None:
        return JudgedState(_FAILED.get(load.failure.kind, BackendState.UNREACHABLE), load.failure.message)
    if not load.seen:
        return JudgedState(BackendState.CONNECTING, "no answer yet")
    if load.asleep:
        rule = load.note or "it was put to sleep: POST /wake_up wakes it"
        return JudgedState(BackendState.ASLEEP, rule)
    judged = _state_by_load(load, thresholds)
    states = load.states_percent
    if states is not None and states >= thresholds.kv_full_percent and judged.state in _LOADED:
        rule = f"{judged.rule}; states {states:.0f} % full: they limit requests, not tokens"
        judged = JudgedState(judged.state, rule, judged.window_s)
    return judged if load.progress is None else _state_without_progress(load.progress, judged)


def scraped_state(
    server: FleetServer, late_at: float = -math.inf, thresholds: StateThresholds = USUAL
) -> BackendState:
    """Return the state of a server on the wall of a Prometheus, by the rules of one that is polled.

    Its newest gauges decide, beside preemptions since the scrape before; those of scrapes before `late_at`
    (monotonic seconds) are stale.
    """
    if server.down:
        return BackendState.UNREACHABLE
    if server.at is not None and server.at < late_at:
        return BackendState.STALE
    load = LoadFigures(
        seen=True,
        preemptions=server.preemptions_per_s,
        kv_cache_percent=server.kv_cache_percent,
        waiting=server.waiting,
        waiting_share=1.0 if server.waiting else 0.0,
        running=server.running,
        tokens_moved=any((server.generation_tps, server.prompt_tps)),
    )
    return backend_state(load, thresholds).state


def _state_without_progress(progress: ProgressView, judged: JudgedState) -> JudgedState:
    """Return the state of an engine without progress; `judged` is its state by its requests."""
    still = progress.word is Progress.STILL
    fact = f"nothing has moved for {progress.seconds:.0f} s" if still else progress.fact
    reason = f"{fact} ({progress.why})" if progress.why else fact
    if progress.word in _STOPPED:
        return JudgedState(_STOPPED[progress.word], reason)
    if judged.state in {*_AT_REST, BackendState.BUSY}:
        return JudgedState(BackendState.BUSY, reason)
    return JudgedState(judged.state, f"{reason}; {judged.rule}")


def _state_by_load(load: LoadFigures, thresholds: StateThresholds) -> JudgedState:
    """Return the state of a backend that answers and is awake, by its requests and their KV cache."""
    short = _short_of_room(load, thresholds)
    if short is not None:
        return short
    if load.running is None:
        reason = load.note or "it does not report how many requests run"
        return JudgedState(BackendState.UNKNOWN, reason)
    return _state_by_requests(load.running, load, thresholds)


def _short_of_room(load: LoadFigures, thresholds: StateThresholds) -> JudgedState | None:
    """Return the state preempting, KV-full or queueing, the first whose rule is met; None if none is."""
    window = _window_text(load)
    if load.preemptions is not None and load.preemptions > 0:
        when = f"{'in' if load.window_s else 'before'} {window}"
        if load.preempted_s and not load.window_s:
            when = f"in the last {load.preempted_s:.0f} s"
        return JudgedState(BackendState.PREEMPTING, f"{count_words(load.preemptions, 'preemption')} {when}")
    kv_percent = load.kv_cache_percent
    if kv_percent is not None and kv_percent >= thresholds.kv_full_percent:
        rule = f"KV cache {kv_percent:.1f} % full, at or above {thresholds.kv_full_percent:g} %"
        return JudgedState(BackendState.KV_FULL, rule)
    swa = load.swa_percent
    if swa is not None and swa >= thresholds.kv_full_percent:
        full_attention = "" if kv_percent is None else f", that of full attention {kv_percent:.0f} %"
        return JudgedState(BackendState.KV_FULL, f"SWA pool {swa:.1f} % full{full_attention}")
    is_queued = load.waiting or load.window_s >= _LEAST_QUEUED * thresholds.window_s
    if is_queued and load.waiting_share and load.waiting_share >= thresholds.queueing_share:
        now = "" if load.waiting is None else f", {load.waiting:.0f} now"
        share = f"{100 * load.waiting_share:.0f} % of " if load.window_s else ""
        rule = f"requests waited in {share}{window}{now}"
        return JudgedState(BackendState.QUEUEING, rule, None if load.waiting else load.window_s)
    return None


def _state_by_requests(running: float, load: LoadFigures, thresholds: StateThresholds) -> JudgedState:
    """Return the state busy, bored or idle of a backend, by its requests, with an explanation.

    A backend at which requests wait now is busy, and so is one whose steps, machine or network limit it. If
    no request runs now, the mean of the last seconds decides. If no request ran in these seconds either, the
    backend is bored if tokens were generated, else idle.
    """
    if load.waiting:
        of_slots = f" of {load.slots} slots" if load.slots else ""
        rule = f"{_count_text(load.waiting)} waiting now, beside {_count_text(running)} running{of_slots}"
        return JudgedState(BackendState.BUSY, rule)
    if running > 0:
        state, rule = _busy_or_bored(running, load, thresholds)
        return JudgedState(state, rule)
    window = _window_text(load)
    if load.running_mean:
        when = f" on average over {window}, none now"
        state, rule = _busy_or_bored(load.running_mean, load, thresholds, when)
        return JudgedState(state, rule, load.window_s)
    if load.tokens_moved:
        when = f"{'in' if load.window_s else 'before'} {window}"
        rule = f"tokens came {when}, in requests too short to be seen running"
        if load.limit in _AT_WORK:
            return JudgedState(BackendState.BUSY, f"{rule}, limited by {load.limit}")
        return JudgedState(BackendState.BORED, rule, load.window_s or None)
    return JudgedState(BackendState.IDLE, f"no request ran in {window}")


def _busy_or_bored(
    running: float, load: LoadFigures, thresholds: StateThresholds, when: str = ""
) -> tuple[BackendState, str]:
    """Return (busy or bored, the rule that decided as text) for a number of running requests.

    `running` is compared with the requests that the server can run at once, or if this is unknown with a
    fixed number. With fewer requests it is busy too while it computes a long prompt, if the engine itself is
    known to be the limit, or while its GPU is at work all the time. `when` are words on a `running` that is
    not of this moment.
    """
    slots = load.slots
    enough = slots * thresholds.busy_share if slots else thresholds.busy_running
    line = f"running {_count_text(running)}{f' of {slots} slots' if slots else ''}{when}"
    if running < enough and load.prefill_s is not None:
        reason = f"prefill: no token in the last {load.prefill_s:.0f} s while its KV cache fills"
        return BackendState.BUSY, f"{line}, {reason}"
    if running < enough and load.limit in _AT_WORK:
        return BackendState.BUSY, f"{line}, limited by {load.limit}"
    if running < enough and load.gpu_percent is not None:
        gpu = f"GPU {load.gpu_percent:.0f} % busy (mean of up to {RECENT_S:.0f} s)"
        return BackendState.BUSY, f"{line}, {gpu}"
    mean = load.running_mean or 0.0  # else states change with each request around the limit
    line += f", {_count_text(mean)} on average" if running < enough <= mean else ""
    rule = f"{line}; busy from {enough:g}{'' if slots else ' (slots unknown)'}"
    return (BackendState.BUSY if max(running, mean) >= enough else BackendState.BORED), rule


def _window_text(load: LoadFigures) -> str:
    """Return the window in words: samples of a Prometheus are often further apart than it is long."""
    return f"the last {max(load.window_s, _LEAST_WINDOW_S):.0f} s" if load.window_s else "the newest sample"


def limit_to_show(limit: Limit | None, view: BackendView) -> Limit | None:
    """Return what holds a backend back, except a limit of work, or an unknown one, of an idle backend."""
    hidden = _AT_WORK | {LimitKind.UNKNOWN}
    is_at_rest = limit is not None and view.state is BackendState.IDLE and limit.kind in hidden
    return None if is_at_rest else limit_that_holds(limit, view)


def limit_that_holds(limit: Limit | None, view: BackendView) -> Limit | None:
    """Return a limit, None if what the server does now denies it: the verdict covers more seconds.

    Requests have begun to wait, the memory is read too little, or no token comes.
    """
    if limit is None:
        return None
    if limit.kind in _TOO_LITTLE_SENT:
        # One that has come to an empty server only awaits its next step.
        return None if view.waiting and (view.running or view.waiting > 1) else limit
    reads = view.estimated_read_gb_per_s if limit.kind is LimitKind.BANDWIDTH else None
    few_reads = reads is not None and 100 * reads < FEW_READS_PERCENT * (limit.limit or 0.0)
    stopped = view.generation_tps_1s == 0 and view.rate_note is None
    return None if limit.kind in _OF_DECODING and (few_reads or stopped) else limit


def _count_text(value: float) -> str:
    """Format a number: without decimals if it is an integer, else with one decimal."""
    return f"{value:.0f}" if value == round(value) else f"{value:.1f}"
