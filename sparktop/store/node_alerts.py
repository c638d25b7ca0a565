"""Raises and clears the alerts about a machine: memory, heat, throttling, RDMA errors, speed and sensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import floor, inf
from operator import itemgetter

from msgspec import Struct

from sparktop.analysis.speed_state import (
    BY_CHOICE,
    NORMAL,
    POWER_CAP,
    SLOW_AFTER_S,
    SLOW_CLOCK,
    SLOW_STEPS,
    THROTTLED,
)
from sparktop.graphics import numbers
from sparktop.model.event import Alert, Event, Severity, Values
from sparktop.model.instant import Instant
from sparktop.model.node import GIB, GpuReading, NetworkReading, NodeSample
from sparktop.model.targets import NodeThresholds
from sparktop.model.text import clean
from sparktop.store.event_log import ActiveAlerts
from sparktop.store.node import NodeTrack, memory_limits
from sparktop.store.sources import SourceKey

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
    message: str
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
    more: Values = {}
    ends: str | None = None
    """What is said when the alert ends; None for its name."""

    def grade(self, held_severity: Severity | None) -> Severity | None:
        """Return the severity that the value deserves, with hysteresis; None if there is to be no alert.

        `held_severity` is the severity of the alert that is active now, None if none is.
        """
        critical = self._clears_at(self.critical) if held_severity is Severity.CRITICAL else self.critical
        if critical is not None and self._is_beyond(critical):
            return Severity.CRITICAL
        limit = self.warn if held_severity is None else self._clears_at(self.warn)
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
    """Raise, update or clear every alert about a node after a sample; return events of what ended."""
    sample = track.view.sample
    if sample is None:
        return []
    for gauge in _gauges(track, sample, thresholds, lambda name: alerts.get(f"{key.label}:{name}")):
        alert_id = f"{key.label}:{gauge.name}"
        severity = gauge.grade(alerts.severity(alert_id))
        if severity is not None:
            track.beyond_at[alert_id] = sample.at
            message = clean(gauge.message, _LONGEST)
            alerts.hold(alert_id, severity, key.name, message, gauge.values(severity), when)
        elif gauge.value is None or sample.at - track.beyond_at.get(alert_id, -inf) >= gauge.quiet_s:
            alerts.clear(alert_id, when, gauge.ends)
    _judge_speed(alerts, key, track, when, thresholds)
    track.known_gpus.judge(alerts, key, sample, track.view.gpus_lost, when)
    return track.endings.note(key, sample, track.view.engine_processes, when)


def _judge_speed(
    alerts: ActiveAlerts, key: SourceKey, track: NodeTrack, when: Instant, thresholds: NodeThresholds
) -> None:
    """Raise, update or clear the alerts "slow-clock" and "slow-steps".

    Either alert clears as soon as the node is measured to be normal or slow for another reason. It also
    clears if its own kind of slowness was last measured `UNJUDGED_S` seconds ago.
    """
    speed, at = track.view.speed, when.at
    has_healthy_steps = speed.word == NORMAL and any(step.healthy for step in track.steps)
    refuted = {
        SLOW_CLOCK: speed.word in {NORMAL, THROTTLED, SLOW_STEPS},
        SLOW_STEPS: speed.word in {THROTTLED, SLOW_CLOCK} or has_healthy_steps,
    }
    for word, is_refuted in refuted.items():
        alert_id = f"{key.label}:{word.replace(' ', '-')}"
        if speed.word == word:
            track.beyond_at[alert_id] = at
            message = f"{word}: {speed.reason}. Likely cause: {speed.cause} → {speed.fix}"
            values = _speed_values(track, word, thresholds)
            alerts.hold(alert_id, Severity.WARNING, key.name, clean(message, _LONGEST), values, when)
        elif is_refuted or at - track.beyond_at.get(alert_id, at) >= UNJUDGED_S:
            alerts.clear(alert_id, when)


def _speed_values(track: NodeTrack, word: str, thresholds: NodeThresholds) -> Values:
    """Return the numbers behind the alert "slow clock" or "slow steps"; `word` is which of the two."""
    if word == SLOW_STEPS:
        slow = max(track.steps, key=lambda step: step.now_ms / step.before_ms, default=None)
        return {
            "step_ms": slow.now_ms if slow else None,
            "before_ms": slow.before_ms if slow else None,
            "limit_ratio": thresholds.slow_step_ratio,
            "window_s": SLOW_AFTER_S,
        }
    gpus = track.view.sample.gpus if track.view.sample else ()
    clocks = [gpu for gpu in gpus if gpu.sm_clock_mhz is not None]
    gpu = min(clocks, key=lambda gpu: gpu.sm_clock_mhz or 0, default=None)
    return {
        "sm_clock_mhz": gpu.sm_clock_mhz if gpu else None,
        "utilization_percent": gpu.utilization_percent if gpu else None,
        "power_w": gpu.power_w if gpu else None,
        "limit_mhz": thresholds.slow_clock_mhz,
        "window_s": SLOW_AFTER_S,
    }


def _gauges(
    track: NodeTrack,
    sample: NodeSample,
    thresholds: NodeThresholds,
    held: Callable[[str], Alert | None],
) -> Iterator[Gauge]:
    """Yield all gauges; `held` returns the alert of a gauge before it, by its name."""
    headroom = _headroom_gauge(sample, thresholds)
    yield headroom
    short = held(headroom.name)
    yield _headroom_limit_gauge(track, is_reached=short is not None and short.worst is Severity.CRITICAL)
    yield _thermal_gauge(sample, thresholds)
    yield from _throttled_gauges(track, thresholds)
    yield _swap_gauge(sample, thresholds, track.span_s)
    yield _rdma_gauge(sample, thresholds, track.span_s)
    yield _sensors_gauge(sample)


def _headroom_gauge(sample: NodeSample, thresholds: NodeThresholds) -> Gauge:
    """Return the gauge of the memory that is left."""
    memory = sample.memory
    left, warn, critical = memory_limits(memory, thresholds) or (None, 0.0, 0.0)
    shown_gib = round((left or 0) / GIB, 1)  # as panels show it, but never the limit that it is below
    if any((left or 0) < limit <= shown_gib * GIB for limit in (warn, critical)):
        shown_gib = floor(10 * (left or 0) / GIB) / 10
    message = f"{shown_gib:.1f} GiB of memory left"
    if not memory.unified and memory.total_bytes:
        message += f" ({100 * (left or 0) / memory.total_bytes:.0f} %)"
    return Gauge(
        "headroom",
        left,
        f"{message}; {memory.handover_cause}" if memory.handover_cause else message,
        warn,
        critical,
        clear_factor=HEADROOM_CLEARS_AT,
        falling=True,
        unit="gib",
        quantity="headroom" if memory.unified else "available",
        scale=GIB,
        more={"total_gib": None if memory.total_bytes is None else memory.total_bytes / GIB},
    )


def _headroom_limit_gauge(track: NodeTrack, *, is_reached: bool) -> Gauge:
    """Return the gauge "headroom-limit": the seconds until memory headroom reaches its critical limit.

    The seconds are extrapolated from the present trend, no further than it is expected to go on. Once the
    limit `is_reached`, the alert of the gauge "headroom" applies instead, up to its end: memory that swings
    about the limit is no further forecast.
    """
    trend = track.view.headroom
    # Where nothing falls the limit is endlessly far away; a trend that comes and goes does not flap.
    until = None if is_reached else track.limit_in_s
    slope, limit = trend.slope_bytes_per_s, (trend.limit_bytes or 0) / GIB
    pace = f"{60 * abs(slope or 0.0) / GIB:.2g} GiB/min"
    return Gauge(
        "headroom-limit",
        until,
        f"memory left will be below {limit:.3g} GiB in {numbers.age(until)} ({numbers.MINUS}{pace})",
        SOON_S,
        NOW_S,
        clear_factor=_LATER_AT,
        falling=True,
        quiet_s=QUIET_S,
        unit="s",
        quantity="until_limit",
        window_s=trend.window_s,
        more={"slope_gib_per_min": None if slope is None else 60 * slope / GIB},
        ends=f"memory left is below {limit:.3g} GiB: forecast came true" if is_reached else None,
    )


def _thermal_gauge(sample: NodeSample, thresholds: NodeThresholds) -> Gauge:
    """Return the gauge of the GPU that is nearest to its thermal limit, in °C below it."""
    gpu = min(
        (gpu for gpu in sample.gpus if gpu.margin_c is not None),
        key=lambda gpu: gpu.margin_c or 0.0,
        default=GpuReading(0),
    )
    left, heat = gpu.margin_c or 0.0, gpu.temperature_c
    name = f"GPU {gpu.index}" if len(sample.gpus) > 1 else "GPU"
    heat_text = "" if heat is None else f" at {heat:.0f} °C"
    limit = "" if heat is None else f" of {heat + left:.0f} °C"
    side = "above" if left < 0 else "below"
    return Gauge(
        "thermal",
        gpu.margin_c,
        f"{name}{heat_text}: {abs(left):.0f} °C {side} its thermal limit{limit}",
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
    gpu = f"GPU {index} " if several and index is not None else ""
    is_covered = covered_s is not None and covered_s >= LEAST_COVERED_S
    unwanted = {reason: percent for reason, percent in percents.items() if reason not in BY_CHOICE}
    power_cap = {POWER_CAP: unwanted.pop(POWER_CAP)} if POWER_CAP in unwanted else {}
    for name, shares, severity in (
        ("throttled", unwanted, Severity.WARNING),
        ("power-cap", power_cap, Severity.INFO),
    ):
        reason = max(shares, key=lambda name: shares[name], default="")
        yield Gauge(
            name,
            shares.get(reason) if is_covered else None,
            f"{gpu}throttled {shares.get(reason, 0.0):.0f} % of the last minute: {reason}",
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
        f"{numbers.data_rate(rate or 0.0, 9).strip()} come back from swap: programs wait for the disk",
        thresholds.swap_in_warn_mib_per_s * MIB,
        clear_factor=RATE_CLEARS_AT,
        quiet_s=QUIET_S,
        unit="mib_per_s",
        quantity="swap_in",
        scale=MIB,
        window_s=window_s,
    )


def _rdma_gauge(sample: NodeSample, thresholds: NodeThresholds, window_s: float | None) -> Gauge:
    """Return the gauge of the RDMA port with the most errors per second, and what grew fastest."""
    ports = [link for link in sample.network if link.kind == "rdma" and link.errors_per_s is not None]
    port = max(ports, key=lambda link: link.errors_per_s or 0.0, default=NetworkReading("", "rdma"))
    moved = {name: rate for name, rate in port.errors.items() if rate > 0 and name not in CONGESTION}
    counters = sorted(moved, key=lambda name: (-moved[name], name))[:_COUNTERS_NAMED]
    names = ", ".join(f"{name} {numbers.often(moved[name])}" for name in counters)
    message = f"{port.name}: RDMA errors {numbers.often(port.errors_per_s)}"
    return Gauge(
        "rdma-errors",
        port.errors_per_s,
        f"{message} ({names})" if names else message,
        thresholds.rdma_errors_warn_per_s,
        clear_factor=RATE_CLEARS_AT,
        quiet_s=QUIET_S,
        unit="per_s",
        quantity="errors",
        window_s=window_s,
        more={"port": clean(port.name, 64) or None},
    )


def _sensors_gauge(sample: NodeSample) -> Gauge:
    """Return the gauge of the sensor that is furthest beyond its critical temperature, in °C."""
    judged = [
        (sensor.temperature_c - sensor.critical_c, sensor)
        for sensor in sample.sensors
        if sensor.critical_c is not None
    ]
    excess, hottest = max(judged, key=itemgetter(0), default=(None, None))
    message = ""
    if hottest is not None:
        others_count = sum(beyond >= 0 for beyond, _ in judged) - 1
        message = f"sensor {hottest.name} at {hottest.temperature_c:.0f} °C, critical from"
        message += f" {hottest.critical_c:g} °C{f', and {others_count} more' if others_count > 0 else ''}"
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
