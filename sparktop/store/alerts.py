"""Raises and clears the alerts about servers, routers, machines, and sources that do not answer.

Also the events about changes of a server's state or model, and its restarts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct, field

from sparktop.analysis.speed_state import (
    BY_CHOICE,
    NORMAL,
    POWER_CAP,
    SLOW_AFTER_S,
    SLOW_CLOCK,
    SLOW_STEPS,
    THROTTLED,
)
from sparktop.model.event import NO_VALUES, Event, Severity, Values
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.instant import Instant
from sparktop.model.node import GpuReading, NetworkReading, NodeSample
from sparktop.model.snapshot import BackendState
from sparktop.model.targets import NodeThresholds, StateThresholds
from sparktop.model.text import clean
from sparktop.rates import LinkKind
from sparktop.store.backend import BackendTrack
from sparktop.store.event_log import ActiveAlerts
from sparktop.store.figures import RATE_WINDOW_S
from sparktop.store.node import GIB, NodeTrack, memory_limits
from sparktop.store.routers import FAILS_A_MINUTE, RouterTrack
from sparktop.store.sources import DOWN_AFTER_FAILURES, DOWN_AFTER_S, Health, SourceKey, SourceKind
from sparktop.store.tracks import Tracks

# An alert has one limit at which it is raised and another at which it is cleared, so that a value near a
# limit does not raise and clear it again and again.


KV_CLEARS_BELOW = 3.0
"""The "KV-full" alert clears this many percentage points below its threshold."""
PREEMPTING_CLEARS_AFTER_S = 30.0
"""The "preempting" alert clears after this many seconds without a preemption."""

DEAD_RANK, ABSENT_MODEL = "dead-rank", "absent-model"
ENDS_WITHIN_S = 5.0
"""A server whose engine ended may take so many seconds to end as well."""
ENDED_TOGETHER_S = 30.0
"""Processes of one engine on several machines end within so many seconds."""
_MINUTE_S = 60.0
"""Seconds over which failed requests and answers are counted."""

_MILD = frozenset(
    {FailureKind.METRICS_DISABLED, FailureKind.OTHER_PROGRAM, FailureKind.UNSUPPORTED, FailureKind.LATE}
)
"""Failures which mean that the source cannot be observed, not that it is down."""
RESTARTS = "restarts"
RESTARTS_WITHIN_S = 600.0
"""Seconds within which restarts are counted."""
RESTARTS_WARN, RESTARTS_CRITICAL = 2, 4
"""Restarts within `RESTARTS_WITHIN_S` seconds that raise a warning, and a critical alert. A single restart is
only an event."""
_OUTLIVES = frozenset({RESTARTS})
"""Alerts that stay active while their source does not answer."""


def failure_id(key: SourceKey, failure: Failure) -> str:
    """Return the id of the alert for `failure`.

    It ends in "engine-dead" if the server still answers while its engine has died, else in "unreachable".
    """
    return f"{key.label}:{'engine-dead' if failure.kind is FailureKind.ENGINE_DEAD else 'unreachable'}"


def judge_health(alerts: ActiveAlerts, key: SourceKey, health: Health, when: Instant) -> None:
    """Raise or clear the alerts "unreachable" and "engine-dead" of a source after a poll at `when`."""
    failure = health.failure
    router = "router " if key.kind is SourceKind.ROUTER else ""
    if failure is None or failure.kind is FailureKind.LOADING:
        is_server = key.kind is not SourceKind.PROMETHEUS
        message = "loads its model" if failure is not None and is_server else "answers again"
        for name in ("unreachable", "engine-dead"):
            alerts.clear(f"{key.label}:{name}", when, f"{router}{message}")
        return
    if not health.down or health.failing_at is None or health.failing_since is None:
        return
    severity = Severity.WARNING if failure.kind in _MILD else Severity.CRITICAL
    alert_id = failure_id(key, failure)
    if alerts.severity(alert_id) is None:
        alerts.clear_source(key, when, "it does not answer", but=_OUTLIVES)
    values: Values = {
        "failure": failure.kind.value,
        "failures": health.failures,
        "limit_failures": DOWN_AFTER_FAILURES,
        "limit_s": DOWN_AFTER_S,
        "window_s": failure.at - health.failing_at,
    }
    began = Instant(health.failing_at, health.failing_since)
    said = f"router down: {failure.message}" if router else failure.message
    alerts.hold(alert_id, severity, key.name, failure.message, values, when, since=began, begins=said)


def judge_router(alerts: ActiveAlerts, key: SourceKey, track: RouterTrack, when: Instant) -> None:
    """Raise, update or clear the alert "deployments" of a router after a successful poll at `when`."""
    alert_id, troubles = f"{key.label}:deployments", track.deployment_troubles()
    if not troubles:
        alerts.clear(alert_id, when)
        return
    (name, words), *others = troubles.items()
    more = f"; and {len(others)} more" if others else ""
    message = f"deployment {track.shown_name(name)}: {words}{more}"
    values: Values = {"deployments": len(troubles), "limit_failures": FAILS_A_MINUTE, "window_s": _MINUTE_S}
    severity = Severity.CRITICAL if track.all_deployments_out else Severity.WARNING
    alerts.hold(alert_id, severity, key.name, clean(message, 300), values, when)


def judge_backend(
    alerts: ActiveAlerts, key: SourceKey, track: BackendTrack, thresholds: StateThresholds, when: Instant
) -> None:
    """Raise, update or clear a backend's alerts on KV cache, restarts, preemptions and failed requests.

    Called after a successful poll at `when`. A sweep of this program fills servers on purpose: while it runs,
    the first two are clear.
    """
    _judge_restarts(alerts, key, track, when)
    for name, limit in (
        ("refused", thresholds.refused_warn_per_min),
        ("http-errors", thresholds.http_5xx_warn_per_min),
    ):
        _judge_failed_requests(alerts, f"{key.label}:{name}", track, limit, when)
    alert_id, preempted_at = f"{key.label}:preempting", track.preempted_at
    if when.at < track.loaded_until:
        for cleared in (alert_id, f"{key.label}:kv-full"):
            alerts.clear(cleared, when, "a sweep loads it")
        return
    _judge_kv_cache(alerts, key, track.view.kv_fullest_percent, thresholds.kv_full_percent, when)
    if preempted_at is None or when.at - preempted_at > PREEMPTING_CLEARS_AFTER_S:
        alerts.clear(alert_id, when)
    elif preempted_at == when.at or alerts.severity(alert_id):
        values: Values = {
            "preemptions_per_s": track.view.preemptions_per_s,
            "limit_preemptions_per_s": 0.0,
            "clears_after_s": PREEMPTING_CLEARS_AFTER_S,
            "window_s": RATE_WINDOW_S,
        }
        message = "preempts running requests: the KV cache is too small for the load"
        alerts.hold(alert_id, Severity.WARNING, key.name, message, values, when)


def model_events(key: SourceKey, track: BackendTrack, when: Instant) -> list[Event]:
    """Return an event if the server serves another model than before; else []."""
    before, now = track.swapped_model(), track.view.model
    if before is None or now is None:
        return []
    message, values = f"serves {now} (was {before})", {"model": now, "before": before}
    return [Event(when.wall, Severity.INFO, key.name, message, values, when.at, f"{key.label}:model")]


def judge_absent_models(
    alerts: ActiveAlerts, router: RouterTrack, absent: Mapping[str, str], when: Instant
) -> None:
    """Raise or clear a router's alert about deployments whose model is not served where they point to.

    `absent` has what is wrong in words, by deployment.
    """
    key = SourceKey.router(router.target.name)
    alert_id = f"{key.label}:{ABSENT_MODEL}"
    if not absent:
        alerts.clear(alert_id, when)
        return
    (first, words), more = next(iter(absent.items())), len(absent) - 1
    message = f"deployment {first} {words}" + (f", and {more} more like it" if more else "")
    values: Values = {"deployments": float(len(absent))}
    alerts.hold(alert_id, Severity.WARNING, key.name, message, values, when)


def keep_ended(track: BackendTrack, event: Event) -> bool:
    """Keep the event that a process of a backend's engine ended; return whether it is news.

    Its processes on other machines end within `ENDED_TOGETHER_S`, and are not.
    """
    at, about = track.ended_at
    if event.at_s is not None and event.at_s - at < ENDED_TOGETHER_S and event.about != about:
        return False
    track.ended, track.ended_at = event, (event.at_s or at, event.about)
    return True


def judge_ended(alerts: ActiveAlerts, key: SourceKey, track: BackendTrack, when: Instant) -> None:
    """Raise or clear the alert "dead-rank": a process of the engine ended, and its server still answers.

    It clears once tokens are made again, which an engine without one of its processes cannot.
    """
    event, alert_id = track.ended, f"{key.label}:{DEAD_RANK}"
    if event is None or event.at_s is None:
        alerts.clear(alert_id, when)
    elif when.at - event.at_s < ENDS_WITHIN_S:
        return
    elif track.view.generation_tps_1s:
        track.ended = None
        alerts.clear(alert_id, when, "makes tokens again")
    else:
        message = f"its {event.values.get('ended')} ended, and its server still answers"
        values: Values = {**event.values, "limit_s": ENDS_WITHIN_S}
        alerts.hold(alert_id, Severity.CRITICAL, key.name, message, values, when)


def _judge_kv_cache(
    alerts: ActiveAlerts, key: SourceKey, percent: float | None, limit: float, when: Instant
) -> None:
    """Raise, update or clear the alert "kv-full".

    `percent` is the used part of the KV cache (None: unknown), `limit` the percentage at which the alert is
    raised.
    """
    alert_id, clears = f"{key.label}:kv-full", limit - KV_CLEARS_BELOW
    if percent is None or percent < clears:
        alerts.clear(alert_id, when)  # what is no longer reported may no longer be full
    elif percent >= limit:
        values = {
            "kv_cache_percent": percent,
            "limit_kv_cache_percent": limit,
            "clears_below_percent": clears,
            "window_s": 0.0,
        }
        message = f"{limit:g} % of the KV cache or more is used"
        alerts.hold(alert_id, Severity.WARNING, key.name, message, values, when)


def _judge_failed_requests(
    alerts: ActiveAlerts, alert_id: str, track: BackendTrack, limit: float | None, when: Instant
) -> None:
    """Raise, update or clear the alert "refused" or "http-errors", by what the server counted in a minute.

    It clears once the minute is over in which the last such request was counted.
    """
    refused = alert_id.endswith("refused")
    found = track.counted("refused" if refused else "http_5xx", _MINUTE_S)
    count = round(found[0]) if found else 0
    if not limit or not count:
        alerts.clear(alert_id, when)
    elif count >= limit or alerts.severity(alert_id):
        answers = track.counted("http_answers", _MINUTE_S)
        share = 100.0 * count / answers[0] if answers and answers[0] and not refused else None
        requests = f"{count:,} request{'' if count == 1 else 's'}"
        last = f"in the last {_MINUTE_S:.0f} s"
        if refused:
            message = f"refused {requests} {last}: its queue is full; send fewer at once, or add a server"
        else:
            part = "" if share is None else f" ({share:.3g} % of all)"
            message = f"answered {requests}{part} with HTTP 5xx {last}: its log says why"
        values: Values = {
            "refused" if refused else "http_5xx": count,
            **({} if share is None else {"share_percent": share}),
            "limit_per_min": limit,
            "window_s": _MINUTE_S,
        }
        alerts.hold(alert_id, Severity.WARNING, track.view.name, message, values, when)


def _judge_restarts(alerts: ActiveAlerts, key: SourceKey, track: BackendTrack, when: Instant) -> None:
    """Raise, update or clear the "restarts" alert; its message has the number of recent restarts."""
    restarted_at = track.restarted_at
    while restarted_at and restarted_at[0] <= when.at - RESTARTS_WITHIN_S:
        restarted_at.popleft()
    count, restarts_id = len(restarted_at), f"{key.label}:{RESTARTS}"
    if count < RESTARTS_WARN:
        alerts.clear(restarts_id, when)
        return
    severity = Severity.CRITICAL if count >= RESTARTS_CRITICAL else Severity.WARNING
    message = f"restarted {count} times in {RESTARTS_WITHIN_S / 60:.0f} min: its log says why it ends"
    limit = RESTARTS_CRITICAL if severity is Severity.CRITICAL else RESTARTS_WARN
    values = _restart_values(track, limit)
    alerts.hold(restarts_id, severity, key.name, message, values, when)


def _restart_values(track: BackendTrack, limit: int) -> Values:
    return {
        "restarts": len(track.restarted_at),
        "limit_restarts": limit,
        "window_s": RESTARTS_WITHIN_S,
    }


def link_events(key: SourceKey, track: BackendTrack, kind: LinkKind, when: Instant) -> list[Event]:
    """Return an event if the server restarted, or if a second server was found at its address; else [].

    `kind` is how the newest sample follows the previous one. There is no event if the alert "restarts"
    reports the restart already, or if the second server was reported before.
    """
    if kind is LinkKind.RESTARTED:
        if len(track.restarted_at) >= RESTARTS_WARN:
            return []
        about, message, values = f"{key.label}:restarted", "restarted", _restart_values(track, RESTARTS_WARN)
    elif kind is LinkKind.OTHER_SERVER and not track.shared_address:
        track.shared_address = True
        about = f"{key.label}:shared-address"
        values = {"servers": 2, "limit_servers": 1, "window_s": 0.0}
        message = "several servers share this address: rates have gaps"
    else:
        return []
    return [Event(when.wall, Severity.WARNING, key.name, message, values, when.at, about)]


# Events about changes of the servers' state words.


HELD_S, STILL_HELD_S = 2.0, 5.0
"""Seconds for which a word must be the same before its change is an event; the same for "no progress", which
begins at 10 s."""
_LOAD = frozenset({BackendState.BUSY, BackendState.BORED, BackendState.IDLE, BackendState.QUEUEING})
"""Words of load, which follow the requests: graphs show them, and a change among them is no event."""
_ALERTS = {
    BackendState.ENGINE_DEAD: "engine-dead",
    BackendState.STUCK: "stuck",
    BackendState.SUSPECT: "stuck",
    BackendState.STILL: "blocked",
    BackendState.PREEMPTING: "preempting",
    BackendState.KV_FULL: "kv-full",
}
"""Names of the alerts whose beginning and end are the events about a state."""


class _Word(Struct):
    """The state of one server as last reported, and a newer one that may not last."""

    reported: BackendState
    by_alert: bool
    """Whether an alert is the report."""
    newest: BackendState
    since_s: float


class StateEvents:
    """Reports each change of a server's state that lasts, unless it is of its load or an alert reports it."""

    def __init__(self) -> None:
        """Start without a state; the first of each server is not an event."""
        self._words: dict[str, _Word] = {}

    def judge(self, tracks: Tracks, alerts: ActiveAlerts, when: Instant) -> list[Event]:
        """Return the events about states that have lasted long enough by now."""
        self._words = {name: word for name, word in self._words.items() if name in tracks.backends}
        result = (
            self._change_event(track, when, by_alert=_has_alert(track, tracks, alerts))
            for track in tracks.backends.values()
        )
        return [event for event in result if event is not None]

    def _change_event(self, track: BackendTrack, when: Instant, *, by_alert: bool) -> Event | None:
        name, state = track.target.name, track.view.state
        if state is BackendState.CONNECTING:
            return None
        word = self._words.setdefault(name, _Word(state, by_alert=False, newest=state, since_s=when.at))
        if state is not word.newest:
            word.newest, word.since_s = state, when.at
        if state is word.reported:
            word.by_alert = word.by_alert or by_alert
            return None
        held_s = STILL_HELD_S if state is BackendState.STILL else HELD_S
        if not by_alert and when.at - word.since_s < held_s:
            return None
        before, was_by_alert = word.reported, word.by_alert
        word.reported, word.by_alert = state, by_alert
        if by_alert or was_by_alert or before is BackendState.STILL or {before, state} <= _LOAD:
            # The beginning or the end of the alert, or of the standstill, is an event of its own.
            return None
        key = SourceKey.backend(name)
        about = f"{key.label}:state/{state.name.lower()}"
        values = {"state": state.value, "before": before.value}
        message = f"{state.value} (was {before.value})"
        return Event(when.wall, Severity.INFO, name, message, values, when.at, about)


def _has_alert(track: BackendTrack, tracks: Tracks, alerts: ActiveAlerts) -> bool:
    """Return whether an alert about the state of a server is active; one about its Prometheus counts too."""
    key, failure = SourceKey.backend(track.target.name), track.health.failure
    if track.view.state is BackendState.STALE and track.target.scrape is not None:
        fleet = tracks.fleets.get(track.target.scrape.source)
        return fleet is not None and fleet.health.failure is not None
    if track.view.state is BackendState.UNREACHABLE and failure is not None:
        return alerts.get(failure_id(key, failure)) is not None
    name = _ALERTS.get(track.view.state)
    return name is not None and alerts.get(f"{key.label}:{name}") is not None


# Alerts about a node: memory, temperature, throttling, swapping, RDMA errors, speed, sensors.


MIB = 2**20
HEADROOM_CLEARS_AT = 1.1
"""The headroom alert clears at this multiple of its limit, so that it does not flap when the value wavers
around the limit."""
MARGIN_CLEARS_C = 2.0
"""The thermal alert clears this many °C beyond its limit."""
SENSOR_CLEARS_C = 3.0
"""The alert of a sensor clears so many °C below its limit."""
SHARE_CLEARS_AT = 0.7
"""An alert about a share of time clears at this multiple of its limit."""
RATE_CLEARS_AT = 0.5
"""An alert about a rate clears at this multiple of its limit."""
QUIET_S = 30.0
"""Alerts about bursts (swapping, errors) clear after this many seconds below their limit."""
UNJUDGED_S = 300.0
"""An alert about slowness stays active for this many seconds while there is no load to check the speed
with."""
SOON_S, NOW_S = 1800.0, 300.0
"""Seconds until the memory headroom's limit that raise a warning, and a critical alert. The panels use the
same limits."""
_LATER_AT = 1.5
"""Multiple of `SOON_S` and `NOW_S` at which the alert ends."""
LEAST_COVERED_S = 15.0
"""Seconds of the last minute that must be known; a share of less time is not meaningful."""
CONGESTION = frozenset({"np_cnp_sent", "rp_cnp_handled", "np_ecn_marked_roce_packets"})
"""RDMA counters of congestion notifications, which are not errors."""
_COUNTERS_NAMED = 3
"""Most counters of RDMA errors that a message names."""
_LONGEST = 400
"""Most characters of a message."""


class Gauge(Struct, frozen=True):
    """The value behind an alert, and the limits at which the alert is raised, becomes critical and clears."""

    name: str
    """The alert's name within its node."""
    value: float | None
    """None if the value is unknown; then there is no alert."""
    message: Callable[[], str]
    warn: float
    """The limit of an alert."""
    critical: float | None = None
    """The limit of a critical one; None where none is."""
    clear_factor: float = 1.0
    clear_offset: float = 0.0
    """A severity ends at its limit times `clear_factor` plus `clear_offset`."""
    falling: bool = False
    """True when values below the limit are bad, instead of values at or above it."""
    quiet_s: float = 0.0
    severity: Severity = Severity.WARNING
    """Severity of the alert between `warn` and `critical`."""
    unit: str = ""
    """Unit at the end of the names in `values`, such as "gib"."""
    quantity: str = ""
    """Name of the value without its unit, such as "headroom"."""
    scale: float = 1.0
    """The number of the value's units in one `unit`."""
    window_s: float | None = 0.0
    """Seconds over which the value was measured; 0 for a single reading, None if unknown."""
    more: Values = field(default_factory=lambda: NO_VALUES)

    def grade(self, held: Severity | None) -> Severity | None:
        """Return the severity that the value deserves, with hysteresis; None if there is to be no alert.

        `held` is the severity of the alert that is active now, None if none is.
        """
        critical = self._clears_at(self.critical) if held is Severity.CRITICAL else self.critical
        if critical is not None and self._is_beyond(critical):
            return Severity.CRITICAL
        limit = self.warn if held is None else self._clears_at(self.warn)
        return self.severity if limit is not None and self._is_beyond(limit) else None

    def values(self, severity: Severity) -> Values:
        """Return the value and its limits for an alert of this severity, for machine-readable output.

        Each name ends in the unit.
        """
        limit = self.critical if severity is Severity.CRITICAL else self.warn
        figures = {self.quantity: self.value, "limit": limit, "clears_at": self._clears_at(limit)}
        scaled = {
            f"{name}_{self.unit}": None if value is None else value / self.scale
            for name, value in figures.items()
        }
        return {**scaled, "window_s": self.window_s, **self.more}

    def _clears_at(self, limit: float | None) -> float | None:
        return None if limit is None else limit * self.clear_factor + self.clear_offset

    def _is_beyond(self, limit: float) -> bool:
        if self.value is None:
            return False
        return self.value < limit if self.falling else self.value >= limit


def judge_node(
    alerts: ActiveAlerts, key: SourceKey, track: NodeTrack, thresholds: NodeThresholds, when: Instant
) -> list[Event]:
    """Raise, update or clear every alert about a node after a sample; return events of GPUs and endings."""
    sample = track.view.sample
    if sample is None:
        return []
    for gauge in _gauges(track, sample, thresholds):
        alert_id = f"{key.label}:{gauge.name}"
        severity = gauge.grade(alerts.severity(alert_id))
        if severity is not None:
            track.beyond_at[alert_id] = sample.at
            message = clean(gauge.message(), _LONGEST)
            alerts.hold(alert_id, severity, key.name, message, gauge.values(severity), when)
        elif sample.at - track.beyond_at.get(alert_id, -QUIET_S) >= gauge.quiet_s or gauge.value is None:
            alerts.clear(alert_id, when)
    _judge_speed(alerts, key, track, when, thresholds)
    ended = track.endings.note(key, sample, track.view.engine_processes, when)
    return [*track.roll.judge(alerts, key, sample, track.view.gpus_lost, when), *ended]


def _judge_speed(
    alerts: ActiveAlerts, key: SourceKey, track: NodeTrack, when: Instant, thresholds: NodeThresholds
) -> None:
    """Raise, update or clear the alerts "slow-clock" and "slow-steps".

    Either alert clears as soon as the node is measured to be normal or slow for another reason. It also
    clears if its own kind of slowness was last measured `UNJUDGED_S` seconds ago.
    """
    speed, at = track.view.speed, when.at
    healthy = {
        SLOW_CLOCK: speed.word in {NORMAL, THROTTLED, SLOW_STEPS},
        SLOW_STEPS: speed.word in {THROTTLED, SLOW_CLOCK}
        or (speed.word == NORMAL and any(each.healthy for each in track.steps)),
    }
    for word, gone in healthy.items():
        alert_id = f"{key.label}:{word.replace(' ', '-')}"
        if speed.word == word:
            track.beyond_at[alert_id] = at
            message = f"{word}: {speed.reason}. Likely cause: {speed.cause}. Fix: {speed.fix}"
            values = _speed_values(track, word, thresholds)
            alerts.hold(alert_id, Severity.WARNING, key.name, clean(message, _LONGEST), values, when)
        elif gone or at - track.beyond_at.get(alert_id, at) >= UNJUDGED_S:
            alerts.clear(alert_id, when)


def _speed_values(track: NodeTrack, word: str, thresholds: NodeThresholds) -> Values:
    """Return the numbers behind the alert "slow clock" or "slow steps"; `word` is which of the two."""
    if word == SLOW_STEPS:
        slow = max(track.steps, key=lambda one: one.now_ms / one.before_ms, default=None)
        return {
            "step_ms": slow.now_ms if slow else None,
            "before_ms": slow.before_ms if slow else None,
            "limit_ratio": thresholds.slow_step_ratio,
            "window_s": SLOW_AFTER_S,
        }
    gpus = track.view.sample.gpus if track.view.sample else ()
    clocks = [gpu for gpu in gpus if gpu.sm_clock_mhz is not None]
    gpu = min(clocks, key=lambda one: one.sm_clock_mhz or 0, default=None)
    return {
        "sm_clock_mhz": gpu.sm_clock_mhz if gpu else None,
        "utilization_percent": gpu.utilization_percent if gpu else None,
        "power_w": gpu.power_w if gpu else None,
        "limit_mhz": thresholds.slow_clock_mhz,
        "window_s": SLOW_AFTER_S,
    }


def _gauges(track: NodeTrack, sample: NodeSample, thresholds: NodeThresholds) -> Iterator[Gauge]:
    yield _headroom_gauge(sample, thresholds)
    yield _headroom_limit_gauge(track)
    yield _thermal_gauge(sample, thresholds)
    yield from _throttled_gauges(track, thresholds)
    yield _swap_gauge(sample, thresholds, track.span_s)
    yield _rdma_gauge(sample, thresholds, track.span_s)
    yield _sensors_gauge(sample)


def _headroom_gauge(sample: NodeSample, thresholds: NodeThresholds) -> Gauge:
    memory = sample.memory
    left, warn, critical = memory_limits(memory, thresholds) or (None, 0.0, 0.0)

    def message() -> str:
        words = f"{(left or 0) / GIB:.1f} GiB of memory left"
        if not memory.unified and memory.total_bytes:
            words += f" ({100 * (left or 0) / memory.total_bytes:.0f} %)"
        return f"{words}; {memory.handover_cause}" if memory.handover_cause else words

    return Gauge(
        "headroom",
        left,
        message,
        warn,
        critical,
        clear_factor=HEADROOM_CLEARS_AT,
        falling=True,
        unit="gib",
        quantity="headroom" if memory.unified else "available",
        scale=GIB,
        more={"total_gib": None if memory.total_bytes is None else memory.total_bytes / GIB},
    )


def _headroom_limit_gauge(track: NodeTrack) -> Gauge:
    """Return the gauge "headroom-limit": the seconds until memory headroom reaches its critical limit.

    The seconds are extrapolated from the present trend, no further than it is expected to go on. Once the
    limit is reached, the gauge "headroom" applies instead.
    """
    trend = track.view.headroom
    # Where nothing falls the limit is endlessly far away; a trend that comes and goes does not flap.
    until = track.limit_in_s or None

    def message() -> str:
        pace = 60 * abs(trend.slope_bytes_per_s or 0.0) / GIB
        limit = (trend.limit_bytes or 0) / GIB
        minutes = max(1, round((until or 0.0) / 60))
        return f"headroom reaches its limit of {limit:.3g} GiB in {minutes} min ({pace:.2g} GiB/min)"

    slope = trend.slope_bytes_per_s
    return Gauge(
        "headroom-limit",
        until,
        message,
        SOON_S,
        NOW_S,
        clear_factor=_LATER_AT,
        falling=True,
        quiet_s=QUIET_S,
        unit="s",
        quantity="until_limit",
        window_s=trend.window_s,
        more={"slope_gib_per_min": None if slope is None else 60 * slope / GIB},
    )


def _thermal_gauge(sample: NodeSample, thresholds: NodeThresholds) -> Gauge:
    gpu = min(
        (gpu for gpu in sample.gpus if gpu.margin_c is not None),
        key=lambda gpu: gpu.margin_c or 0.0,
        default=GpuReading(0),
    )
    margin = gpu.margin_c

    def message() -> str:
        left = margin or 0.0
        name = f"GPU {gpu.index}" if len(sample.gpus) > 1 else "GPU"
        heat = "" if gpu.temperature_c is None else f" at {gpu.temperature_c:.0f} °C"
        side = "above" if left < 0 else "below"
        return f"{name}{heat}: {abs(left):.0f} °C {side} its thermal limit"

    return Gauge(
        "thermal",
        margin,
        message,
        thresholds.thermal_margin_warn_c,
        thresholds.thermal_margin_critical_c,
        clear_offset=MARGIN_CLEARS_C,
        falling=True,
        unit="c",
        quantity="margin",
        more={"temperature_c": gpu.temperature_c},
    )


def _throttled_gauges(track: NodeTrack, thresholds: NodeThresholds) -> Iterator[Gauge]:
    """Yield the gauges of the alerts "throttled" and "power-cap".

    Their value is the percent of the last minute in which a GPU was throttled. A power cap is expected, so
    its alert has the severity INFO.
    """
    sample = track.view.sample
    index, percents, covered_s = track.throttled or (None, {}, None)
    several = sample is not None and len(sample.gpus) > 1
    known = covered_s is not None and covered_s >= LEAST_COVERED_S
    for name, severity in (("throttled", Severity.WARNING), ("power-cap", Severity.INFO)):
        shares = {
            reason: percent
            for reason, percent in percents.items()
            if reason not in BY_CHOICE and (reason == POWER_CAP) == (name == "power-cap")
        }
        reason = max(shares, key=lambda each: shares[each], default="")

        def message(reason: str = reason, percent: float = shares.get(reason, 0.0)) -> str:
            gpu = "" if index is None or not several else f"GPU {index} "
            return f"{gpu}throttled {percent:.0f} % of the last minute: {reason}"

        yield Gauge(
            name,
            shares.get(reason) if known else None,
            message,
            thresholds.throttled_warn_percent,
            clear_factor=SHARE_CLEARS_AT,
            severity=severity,
            unit="percent",
            quantity="throttled",
            window_s=covered_s,
            more={"reason": reason},
        )


def _swap_gauge(sample: NodeSample, thresholds: NodeThresholds, window_s: float | None) -> Gauge:
    rate = sample.memory.swap_in_bytes_per_s
    return Gauge(
        "swap-in",
        rate,
        lambda: f"{(rate or 0) / MIB:.1f} MiB/s come back from swap: memory is short",
        thresholds.swap_in_warn_mib_per_s * MIB,
        clear_factor=RATE_CLEARS_AT,
        quiet_s=QUIET_S,
        unit="mib_per_s",
        quantity="swap_in",
        scale=MIB,
        window_s=window_s,
    )


def _rdma_gauge(sample: NodeSample, thresholds: NodeThresholds, window_s: float | None) -> Gauge:
    ports = [link for link in sample.network if link.kind == "rdma" and link.errors_per_s is not None]
    port = max(ports, key=lambda link: link.errors_per_s or 0.0, default=None)
    return Gauge(
        "rdma-errors",
        port.errors_per_s if port else None,
        lambda: _rdma_errors_text(port) if port else "",
        thresholds.rdma_errors_warn_per_s,
        clear_factor=RATE_CLEARS_AT,
        quiet_s=QUIET_S,
        unit="per_s",
        quantity="errors",
        window_s=window_s,
        more={"port": clean(port.name, 64) if port else None},
    )


def _rdma_errors_text(port: NetworkReading) -> str:
    """Return a message with a port's RDMA errors/s and the error counters that grew fastest."""
    moved = {name: rate for name, rate in port.errors.items() if rate > 0 and name not in CONGESTION}
    most = sorted(moved, key=lambda name: (-moved[name], name))[:_COUNTERS_NAMED]
    names = ", ".join(f"{name} {moved[name]:.3g}/s" for name in most)
    return f"{port.name}: {port.errors_per_s:.3g} RDMA errors/s{f' ({names})' if names else ''}"


def _sensors_gauge(sample: NodeSample) -> Gauge:
    judged = [
        (sensor.temperature_c - sensor.critical_c, sensor)
        for sensor in sample.sensors
        if sensor.critical_c is not None
    ]
    excess, hottest = max(judged, key=lambda each: each[0], default=(None, None))

    def message() -> str:
        if hottest is None:
            return ""
        others = sum(beyond >= 0 for beyond, _ in judged) - 1
        words = f"sensor {hottest.name} at {hottest.temperature_c:.0f} °C, critical from"
        words += f" {hottest.critical_c:g} °C"
        return f"{words}, and {others} more" if others > 0 else words

    return Gauge(
        "sensors",
        excess,
        message,
        0.0,
        0.0,
        clear_offset=-SENSOR_CLEARS_C,
        unit="c",
        quantity="excess",
        more={
            "temperature_c": hottest.temperature_c if hottest else None,
            "critical_c": hottest.critical_c if hottest else None,
        },
    )
