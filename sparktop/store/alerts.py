"""Raises and clears the alerts about servers, routers, machines, and sources that do not answer.

Also the events about changes of a server's state, model or setup, and its restarts.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter

from msgspec import Struct

from sparktop.graphics.numbers import count_words
from sparktop.model.event import Event, Severity, Values, span_text
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.instant import Instant
from sparktop.model.snapshot import BackendState
from sparktop.model.targets import StateThresholds
from sparktop.model.text import clean
from sparktop.rates import RATE_WINDOW_S, LinkKind
from sparktop.store.backend import BackendTrack
from sparktop.store.event_log import ActiveAlerts
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
_FEWEST_ABORTED, _ABORTED_SHARE, _ABORTED_CLEARS_SHARE = 20, 0.5, 0.25
"""Requests of a minute whose clients left, and their share of all that ended, from which on that is said; the
share below which it clears. Editors that complete code give up some requests all day."""

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
_SAME_ENGINE = frozenset({"openai", "triton", "ray", "nim", "dynamo", "lmcache"})
"""What a server is taken for as long as its page has no names of the engine inside."""
_OUTLIVES = frozenset({RESTARTS, "start-short", "start-stuck"})
"""Alerts that stay active while their source does not answer; findings on a start are about that."""


def failure_id(key: SourceKey, failure: Failure) -> str:
    """Return the id of the alert for `failure`.

    It ends in "engine-dead" if the server still answers while its engine has died, else in "unreachable".
    """
    return f"{key.label}:{'engine-dead' if failure.kind is FailureKind.ENGINE_DEAD else 'unreachable'}"


def judge_health(alerts: ActiveAlerts, key: SourceKey, health: Health, when: Instant) -> None:
    """Raise or clear the alerts "unreachable" and "engine-dead" of a source after a poll at `when`."""
    failure = health.failure
    router = "router " if key.kind is SourceKind.ROUTER else ""
    subject = "machine " if key.kind is SourceKind.NODE else router
    if failure is None or failure.kind is FailureKind.LOADING:
        is_server = key.kind is not SourceKind.PROMETHEUS
        message = "loads its model" if failure is not None and is_server else "answers again"
        for name in ("unreachable", "engine-dead"):
            alerts.clear(f"{key.label}:{name}", when, f"{subject}{message}")
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


def judge_router(
    alerts: ActiveAlerts, key: SourceKey, track: RouterTrack, loading: Mapping[str, str], when: Instant
) -> None:
    """Raise, update or clear the alert "deployments" of a router after a successful poll at `when`.

    `loading` has the troubled deployments whose servers load, in words by id. Where these are all, and not
    all that the router has, it is a remark.
    """
    alert_id, troubles = f"{key.label}:deployments", track.deployment_troubles()
    if not troubles:
        alerts.clear(alert_id, when)
        return
    (name, words), *others = sorted(troubles.items(), key=lambda trouble: trouble[0] in loading)
    more = f"; and {len(others)} more deployment{'s' if len(others) > 1 else ''}" if others else ""
    cause = f"; {loading[name]}" if name in loading else ""
    message = f"deployment {track.sample.shown_name(name)}: {words}{cause}{more}"
    values: Values = {"deployments": len(troubles), "limit_failures": FAILS_A_MINUTE, "window_s": _MINUTE_S}
    severity = Severity.INFO if len(loading) == len(troubles) else Severity.WARNING
    track.trouble_severity = severity = Severity.CRITICAL if track.all_deployments_out else severity
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
        ("lmcache-failures", FAILS_A_MINUTE),
    ):
        _judge_counted(alerts, f"{key.label}:{name}", track, limit, when)
    _judge_lmcache(alerts, key, track.view.counter_figures.get("lmcache_unhealthy"), when)
    _judge_aborted(alerts, f"{key.label}:aborted", track, when)
    alert_id, preempted_at = f"{key.label}:preempting", track.preempted_at
    if when.at < track.loaded_until:
        for cleared in (alert_id, f"{key.label}:kv-full", f"{key.label}:aborted"):
            alerts.clear(cleared, when, "a sweep loads it")
        return
    pools = {
        "KV cache": track.view.kv_fullest_percent,
        "SWA pool": track.view.counter_figures.get("swa_pool_percent"),
    }
    known_percents = {pool: percent for pool, percent in pools.items() if percent is not None}
    _judge_kv_cache(alerts, key, known_percents, thresholds.kv_full_percent, when)
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
    (model, words), more = next(iter(absent.items())), len(absent) - 1
    message = f"deployment {router.sample.shown_name(model)} {words}" + (
        f", and {more} more like it" if more else ""
    )
    values: Values = {"deployments": float(len(absent))}
    alerts.hold(alert_id, Severity.WARNING, key.name, message, values, when)


def keep_end_event(track: BackendTrack, event: Event) -> bool:
    """Keep the event that a process of a backend's engine ended; return whether it is news.

    Its processes on other machines end within `ENDED_TOGETHER_S`, and are not.
    """
    at, about = track.ended_at
    if event.at_s is not None and event.at_s - at < ENDED_TOGETHER_S and event.about != about:
        return False
    track.ended, track.ended_at = event, (event.at_s or at, event.about)
    return True


def ended_words(track: BackendTrack, at: float) -> str | None:
    """Return which process of a backend's engine ended, in words; None before its server may end as well."""
    event = track.ended
    if event is None or event.at_s is None or at - event.at_s < ENDS_WITHIN_S:
        return None
    return f"{event.values.get('ended')} ended"


def judge_dead_rank(alerts: ActiveAlerts, key: SourceKey, track: BackendTrack, when: Instant) -> None:
    """Raise or clear the alert "dead-rank": a process of the engine ended, and its server still answers.

    It clears once tokens are made again, which an engine without one of its processes cannot.
    """
    event, alert_id = track.ended, f"{key.label}:{DEAD_RANK}"
    words = ended_words(track, when.at)
    if event is None or event.at_s is None:
        alerts.clear(alert_id, when)
    elif words is None:
        return
    elif track.view.generation_tps_1s:
        track.ended = None
        alerts.clear(alert_id, when, "makes tokens again")
    else:
        message = f"{words}, and the server still answers"
        values: Values = {**event.values, "limit_s": ENDS_WITHIN_S}
        ended = Instant(event.at_s, event.at)
        alerts.hold(alert_id, Severity.CRITICAL, key.name, message, values, when, since=ended)


def _judge_kv_cache(
    alerts: ActiveAlerts, key: SourceKey, pools: Mapping[str, float], limit: float, when: Instant
) -> None:
    """Raise, update or clear the alert "kv-full".

    `pools` are the used percentages of pools that hold tokens, as far as known; `limit` is the percentage at
    which the alert is raised.
    """
    alert_id, clears = f"{key.label}:kv-full", limit - KV_CLEARS_BELOW
    pool, percent = max(pools.items(), key=itemgetter(1), default=("", 0.0))
    if percent < clears:
        alerts.clear(alert_id, when)  # what is no longer reported may no longer be full
    elif percent >= limit or alerts.severity(alert_id):
        values = {
            "kv_cache_percent": percent,
            "limit_kv_cache_percent": limit,
            "clears_below_percent": clears,
            "window_s": 0.0,
        }
        alerts.hold(alert_id, Severity.WARNING, key.name, f"{pool} {percent:.0f} % full", values, when)


def _judge_lmcache(alerts: ActiveAlerts, key: SourceKey, unhealthy: float | None, when: Instant) -> None:
    """Raise or clear the alert "lmcache" by the number of `unhealthy` processes of LMCache in a server."""
    alert_id = f"{key.label}:lmcache"
    if unhealthy:
        values = {"unhealthy": unhealthy, "limit": 1.0}
        message = "LMCache says that it is unhealthy: it may find and keep nothing"
        alerts.hold(alert_id, Severity.WARNING, key.name, message, values, when)
    else:
        alerts.clear(alert_id, when)


def _judge_counted(
    alerts: ActiveAlerts, alert_id: str, track: BackendTrack, limit: float | None, when: Instant
) -> None:
    """Raise, update or clear an alert of `_COUNTED`, by what the server counted in a minute.

    It clears once the minute is over in which the last one was counted.
    """
    counter, message = _COUNTED[alert_id.rpartition(":")[2]]
    counted, _ = track.growth(counter, _MINUTE_S) or (0.0, 0.0)
    count = round(counted)
    if not limit or not count:
        alerts.clear(alert_id, when)
    elif count >= limit or alerts.severity(alert_id):
        requests = count_words(count, "request")
        values: Values = {counter: count, "limit_per_min": limit, "window_s": _MINUTE_S}
        text = message.format(count=f"{count:,}", requests=requests, last=f"in the last {_MINUTE_S:.0f} s")
        alerts.hold(alert_id, Severity.WARNING, track.view.name, text, values, when)


_COUNTED = {
    "refused": (
        "refused",
        "refused {requests} {last}: its queue is full; send fewer at once, or add a server",
    ),
    "http-errors": ("http_5xx", "answered {requests} with HTTP 5xx {last}: its log says why"),
    "lmcache-failures": (
        "lmcache_failures",
        "LMCache counted {count} failures {last}: it keeps or finds less",
    ),
}
"""By kind of alert: the counter, and the message."""


def _judge_aborted(alerts: ActiveAlerts, alert_id: str, track: BackendTrack, when: Instant) -> None:
    """Raise, update or clear the remark "aborted": most requests end because their clients leave.

    vLLM 0.32 does not count them as finished, but their answers as sent: an answer to a request that is
    neither finished nor new among those in flight was left by its client.
    """
    since = when.at - _MINUTE_S
    aborted = track.load.growth_since("aborted", since) or 0.0
    ended = track.load.growth_since("finished", since) or 0.0
    answered, _ = track.growth("http_generated", _MINUTE_S) or (0.0, 0.0)
    arrived = track.load.arrivals_since(since) if answered else None
    seen = max(ended, (arrived or 0.0) - track.load.vanished_since(since))
    if arrived is not None and answered > seen:
        aborted, ended = aborted + answered - seen, answered
    share, is_alerted = aborted / ended if ended else 0.0, alerts.severity(alert_id) is not None
    least_share = _ABORTED_CLEARS_SHARE if is_alerted else _ABORTED_SHARE
    if share < least_share or (aborted < _FEWEST_ABORTED and not is_alerted):
        alerts.clear(alert_id, when)
        return
    period_words = f"in the last {_MINUTE_S:.0f} s"
    message = f"{aborted:.0f} of {ended:.0f} requests ended {period_words} because their client left"
    values: Values = {
        "aborted": round(aborted),
        "share_percent": 100 * share,
        "limit_share_percent": 100 * _ABORTED_SHARE,
        "window_s": _MINUTE_S,
    }
    alerts.hold(alert_id, Severity.INFO, track.view.name, message, values, when)


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
    span = span_text(restarted_at[-1] - restarted_at[0])
    message = f"restarted {count} times in {span}: its log says why it ends"
    limit = RESTARTS_CRITICAL if severity is Severity.CRITICAL else RESTARTS_WARN
    values = _restart_values(track, limit, when)
    alerts.hold(restarts_id, severity, key.name, message, values, when)


def _restart_values(track: BackendTrack, limit: int, when: Instant) -> Values:
    """Return the number of recent restarts with its limit, and the seconds since the first of them."""
    restarted_at = track.restarted_at
    return {
        "restarts": len(restarted_at),
        "limit_restarts": limit,
        "window_s": when.at - restarted_at[0] if restarted_at else 0.0,
    }


def link_events(
    key: SourceKey, track: BackendTrack, kind: LinkKind, when: Instant, before: str | None
) -> list[Event]:
    """Return an event if the server restarted, or if another one was found at its address; else [].

    `kind` is how the newest sample follows the previous one, of the engine `before`. There is no event if the
    alert "restarts" reports the restart already, or if the second server was reported before.
    """
    change = _engine_change(before, track.view.engine)
    if kind is LinkKind.RESTARTED:
        if len(track.restarted_at) >= RESTARTS_WARN:
            return []
        about, message = f"{key.label}:restarted", f"restarted{change and f' as {change}'}"
        values = _restart_values(track, RESTARTS_WARN, when)
    elif kind is LinkKind.JUMPED and change:
        about, message = f"{key.label}:engine", f"now {change}"
        values = {"engine": track.view.engine, "before": before}
    elif kind is LinkKind.OTHER_SERVER and not track.shared_address:
        track.shared_address = True
        about = f"{key.label}:shared-address"
        values = {"servers": 2, "limit_servers": 1, "window_s": 0.0}
        message = "several servers share this address: rates have gaps"
    else:
        return []
    return [Event(when.wall, Severity.WARNING, key.name, message, values, when.at, about)]


def _engine_change(before: str | None, now: str | None) -> str:
    """Return the change of the engine at an address in words: "SGLang (was vLLM)"; "" if it is the same.

    Names of a front, or of an engine that is not known yet, may give way to those of the same engine.
    """
    if before is None or now is None or before == now or {before, now} & _SAME_ENGINE:
        return ""
    from sparktop.engines import ENGINES  # late: the first picture needs no reader of pages

    titles = [ENGINES[name].title if name in ENGINES else name for name in (now, before)]
    return f"{titles[0]} (was {titles[1]})"


# Events about changes of the servers' state words.


HELD_S = 2.0
"""Seconds for which a word must be the same before its change is an event."""
_LOAD = frozenset({BackendState.BUSY, BackendState.BORED, BackendState.IDLE, BackendState.QUEUEING})
"""Words of load, which follow the requests: graphs show them, and a change among them is no event."""
_ALERTS = {
    BackendState.ENGINE_DEAD: "engine-dead",
    BackendState.STUCK: "stuck",
    BackendState.SUSPECT: "stuck",
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
        """Return the event of a changed state; None while it may not last, or if another event says so."""
        name, state = track.target.name, track.view.state
        if state is BackendState.CONNECTING:
            return None
        word = self._words.setdefault(name, _Word(state, by_alert=False, newest=state, since_s=when.at))
        if state is not word.newest:
            word.newest, word.since_s = state, when.at
        if state is word.reported:
            word.by_alert = word.by_alert or by_alert
            return None
        fails = _fails(track) and not track.health.down  # its alert will say it
        if not by_alert and (fails or when.at - word.since_s < HELD_S):
            return None
        before, was_by_alert = word.reported, word.by_alert
        word.reported, word.by_alert = state, by_alert
        if by_alert or was_by_alert or {before, state} <= _LOAD:
            # The beginning or the end of the alert, or of the standstill, is an event of its own.
            return None
        key = SourceKey.backend(name)
        about = f"{key.label}:state/{state.name.lower()}"
        values = {"state": state.value, "before": before.value}
        message, lasted = f"{state.value} (was {before.value})", when.at - word.since_s
        return Event(when.wall, Severity.INFO, name, message, values, when.at, about, duration_s=lasted)


def _has_alert(track: BackendTrack, tracks: Tracks, alerts: ActiveAlerts) -> bool:
    """Return whether an alert about the state of a server is active; one about its Prometheus counts too.

    "no progress" counts as one: its event has the cause.
    """
    key, failure = SourceKey.backend(track.target.name), track.health.failure
    if track.view.state is BackendState.STILL:
        return True
    if track.view.state is BackendState.STALE and track.target.scrape is not None:
        fleet = tracks.fleets.get(track.target.scrape.source)
        return fleet is not None and fleet.health.failure is not None
    if _fails(track) and failure is not None:
        return alerts.get(failure_id(key, failure)) is not None
    name = _ALERTS.get(track.view.state)
    return name is not None and alerts.get(f"{key.label}:{name}") is not None


def _fails(track: BackendTrack) -> bool:
    """Return whether a server is not reached, or answers with something else than its metrics."""
    answers_otherwise = track.view.state is BackendState.UNKNOWN and track.health.failure is not None
    return answers_otherwise or track.view.state is BackendState.UNREACHABLE
