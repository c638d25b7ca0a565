"""The event that a machine restarted, with the machine's last values before the restart."""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.graphics import numbers
from sparktop.model.event import Event, Severity, Values
from sparktop.model.instant import Instant
from sparktop.model.node import NodeIdentity
from sparktop.store.keys import SourceKey
from sparktop.store.node.track import NodeTrack

SLOPE_S = 30.0
"""The change of memory headroom is measured over this many seconds before the last sample."""
_LEAST_SLOPE_S = 2.0
_FALLING_GIB_PER_S = 0.01
"""Slower falls are not mentioned."""
_SAID = ("last_sample_age_s", "headroom_gib", "headroom_slope_gib_per_s", "temperature_c", "power_w")
"""Names of the values that the message has."""


def restart_events(key: SourceKey, track: NodeTrack, identity: NodeIdentity, when: Instant) -> list[Event]:
    """Return an event if `identity` has another boot id than the machine had before; otherwise [].

    Called before `track` stores the identity, while its newest sample is still from before the restart.
    """
    before, after = track.boot_id, identity.boot_id
    if before is None or after is None or before == after:
        return []
    values = _last_values(track, when)
    message = "machine restarted"
    if words := _words(values):
        message += f": {words}"
    about = f"{key.label}:boot"
    return [Event(when.wall, Severity.WARNING, key.name, message, values, when.at, about)]


def _last_values(track: NodeTrack, when: Instant) -> Values:
    """Return memory headroom, its trend, GPU temperature and power from the last sample before the restart.

    A value that is not known is None. The result is empty if there was no sample.
    """
    sample = track.view.sample
    if sample is None:
        return {}
    heat = [gpu.temperature_c for gpu in sample.gpus if gpu.temperature_c is not None]
    series = track.view.history.headroom_gib.since(sample.at - SLOPE_S)
    known = [(time, value) for time, value in series if value is not None]
    power = [gpu.power_w for gpu in sample.gpus if gpu.power_w is not None]
    return {
        "last_sample_age_s": max(0.0, when.at - sample.at),
        "headroom_gib": known[-1][1] if known else None,
        "headroom_slope_gib_per_s": _slope(known),
        "temperature_c": max(heat, default=None),
        "power_w": sum(power) if power else None,
        "window_s": SLOPE_S,
    }


def _slope(known: Sequence[tuple[float, float]]) -> float | None:
    """Return the change per second from the first to the last (time, value); None where it is not known."""
    if not known or known[-1][0] - known[0][0] < _LEAST_SLOPE_S:
        return None
    return (known[-1][1] - known[0][1]) / (known[-1][0] - known[0][0])


def _words(values: Values) -> str:
    """Return the values in a sentence such as "last seen 40 s before with headroom 1.1 GiB, GPU 61 °C"."""
    age_s, left, slope, heat, power = (
        value if isinstance(value, float | int) else None for value in (values.get(name) for name in _SAID)
    )
    if age_s is None:
        return ""
    parts = []
    if left is not None:
        falling = slope is not None and slope < -_FALLING_GIB_PER_S
        parts.append(f"headroom {left:.1f} GiB{f' falling {-(slope or 0.0):.2g} GiB/s' if falling else ''}")
    parts += [f"GPU {heat:.0f} °C"] if heat is not None else []
    parts += [f"{power:.0f} W"] if power is not None else []
    seen = f"last seen {numbers.age(age_s)} before"
    return f"{seen} with {', '.join(parts)}" if parts else seen
