"""The event that a machine restarted, with the machine's last values before the restart."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from sparktop.model.ending import LastBoot
from sparktop.model.event import Event, Severity, Values
from sparktop.model.instant import Instant
from sparktop.model.node import NodeIdentity, NodeSample
from sparktop.store.keys import SourceKey
from sparktop.store.node.endings import Endings, last_words
from sparktop.store.node.track import NodeTrack

SLOPE_S = 30.0
"""The change of memory headroom is measured over this many seconds before the last sample."""
_LEAST_SLOPE_S = 2.0
_FALLING_GIB_PER_S = 0.01
"""Slower falls are not mentioned."""
_FULL_SHARE, _LITTLE_GIB = 0.97, 2.0
"""Share of memory in use, and headroom in GiB, beyond which a restart may have been a memory wedge."""
_HOT_C = 90.0


def restart_events(key: SourceKey, track: NodeTrack, identity: NodeIdentity, when: Instant) -> list[Event]:
    """Return an event if `identity` has another boot id than the machine had before, else [].

    A second event follows once the machine has read how its last boot ended. Called before `track` stores the
    identity, while its newest sample is still from before the restart.
    """
    before, after = track.boot_id, identity.boot_id
    about = f"{key.label}:boot"
    if before is None or after is None or before == after:
        if (
            track.rebooted_at is None
            or identity.last_boot is None
            or track.view.identity.last_boot is not None
        ):
            return []
        return [Event(when.wall, Severity.INFO, key.name, end_words(identity.last_boot), {}, when.at, about)]
    values = _last_values(track, when)
    track.rebooted_at = when.at
    track.endings = Endings()
    message = _message(track, values, identity, when)
    return [Event(when.wall, Severity.WARNING, key.name, message, values, when.at, about)]


def _message(track: NodeTrack, values: Values, identity: NodeIdentity, when: Instant) -> str:
    """Return when it rebooted, when it was last seen and how, and the likely reason if there is a sign."""
    said = "rebooted"
    if identity.booted_at is not None:
        said += f" at {datetime.fromtimestamp(identity.booted_at, UTC).astimezone():%H:%M}"
    age_s = _number(values, "last_sample_age_s")
    if age_s is None:
        return said
    seen = f"{(when.wall - timedelta(seconds=age_s)).astimezone():%H:%M:%S}"
    words = last_words(track.view.sample)
    headroom, slope = _number(values, "headroom_gib"), _number(values, "headroom_slope_gib_per_s")
    if headroom is not None and (slope or 0.0) < -_FALLING_GIB_PER_S:
        words = ", ".join(
            filter(None, (words, f"headroom {headroom:.1f} GiB falling {-(slope or 0.0):.2g} GiB/s"))
        )
    said += f"; last seen {seen}" + (f" at {words}" if words else "")
    guess = _guess(track.view.sample, headroom)
    return f"{said}: {guess}" if guess else said


def _guess(sample: NodeSample | None, headroom_gib: float | None) -> str:
    """Return what the last sample suggests, as a question; "" if it suggests nothing."""
    if sample is None:
        return ""
    used, total = sample.memory.used_bytes, sample.memory.total_bytes
    full = used is not None and bool(total) and used >= _FULL_SHARE * (total or 0)
    if full or (headroom_gib is not None and headroom_gib < _LITTLE_GIB):
        return "memory wedge?"
    if any((gpu.temperature_c or 0.0) >= _HOT_C for gpu in sample.gpus):
        return "overheated?"
    return ""


def end_words(last: LastBoot) -> str:
    """Return how the last boot ended, in words, and what cannot be read."""
    parts = []
    if last.watchdog:
        parts.append("the hardware watchdog reset it")
    if last.clean is not None:
        parts.append("it was shut down in order" if last.clean else "it was not shut down in order")
    if last.last_line:
        parts.append(f"last line of its journal: {last.last_line}")
    if last.unreadable:
        parts.append(last.unreadable)
    return f"how it went down: {'; '.join(parts) if parts else 'nothing was left to read'}"


def _number(values: Values, name: str) -> float | None:
    value = values.get(name)
    return value if isinstance(value, float | int) else None


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
