"""Why a GPU runs slower than it could: the current reasons, and the share of time of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sparktop.hardware.counters import CounterRates
from sparktop.hardware.nvml import Nvml

_IDLE = 0x1
_REASONS = {
    0x2: "application clocks",
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "hardware power brake",
    0x100: "display clock",
    0x200: "board limit",
    0x400: "reliability",
}
"""Bits of nvmlClocksEventReason* in nvml.h, without the idle bit, which is not throttling."""

_POLICY_FIELDS = {74: "software power cap", 75: "software thermal", 76: "sync boost"}
"""NVML_FI_DEV_PERF_POLICY_*: the same counters under numbers that never changed."""
_EVENT_REASONS = ("software thermal", "hardware thermal", "hardware power brake")
"""NVML_FI_DEV_CLOCKS_EVENT_REASON_*_SLOWDOWN, in the order of their numbers."""
_FIRST_NUMBERS = (((580, 82), 269), ((580, 65, 7), None), ((575,), 251))
"""The first of those numbers by driver version, newest version first.

The numbers moved: driver 580.65.06 answers to 251-253 and uses 269-271 for power smoothing, 580.82 has it the
other way round. nvidia-ml-py's names come from one version of the header, whichever driver is installed, so
they cannot be trusted; the numbers between the two versions are unknown.
"""
_LONG_TYPES = frozenset({2, 3})
"""nvmlValueType_t of 64-bit counters (unsigned long, unsigned long long)."""
_SHARE_MAX_PERCENT = 110.0
"""Above it the counter must have another unit; between 100 % and this, the driver counted a little late."""


def reason_words(bits: int) -> tuple[str, ...]:
    """Return the active reasons of a clocks-event mask as words, in the order of their bits."""
    known = [word for bit, word in _REASONS.items() if bits & bit]
    unknown = bits & ~(_IDLE | sum(_REASONS))
    return (*known, f"reason 0x{unknown:x}") if unknown else tuple(known)


def throttle_fields(driver: str | None) -> dict[int, str]:
    """Return the throttle counters of a driver's version: field number to the reason that it counts."""
    fields = dict(_POLICY_FIELDS)
    try:
        version = tuple(int(part) for part in (driver or "").split("."))
    except ValueError:
        return fields
    for since, first in _FIRST_NUMBERS:
        if version >= since:
            if first is not None:
                fields = {number: word for number, word in fields.items() if word not in _EVENT_REASONS}
                fields.update(enumerate(_EVENT_REASONS, first))
            return fields
    return fields


class ThrottleShares:
    """Converts one GPU's throttle counters (nanoseconds) into shares of the time between two readings."""

    def __init__(self, fields: Mapping[int, str]) -> None:
        """Read the fields of `throttle_fields`."""
        self._fields = fields
        self._rates: CounterRates[str] = CounterRates()
        self._first: dict[str, tuple[float, int]] = {}
        """The first (time, value) of each counter, to check its unit against wall time."""

    def read(self, nvml: Nvml, index: int, handle: object, now: float) -> dict[str, float | None]:
        """Return percent by reason; empty when this driver has no counters, None where a share is unknown."""
        answers = nvml.ask(now, index, "nvmlDeviceGetFieldValues", handle, list(self._fields))
        if answers is None:
            return {}
        counters = self._counters(answers)
        rates = self._rates.step(counters, now)
        return {reason: self._share(reason, count, rates[reason], now) for reason, count in counters.items()}

    def _share(self, reason: str, count: int, per_second: float | None, now: float) -> float | None:
        """Return the percentage of the time since the previous reading; None when it is implausible."""
        first_at, first = self._first.setdefault(reason, (now, count))
        if count < first:
            self._first[reason] = (now, count)
        elif now > first_at and _percent((count - first) / (now - first_at)) > _SHARE_MAX_PERCENT:
            return None
        percent = None if per_second is None else _percent(per_second)
        return None if percent is None or percent > _SHARE_MAX_PERCENT else min(100.0, percent)

    def _counters(self, answers: Iterable[Any]) -> dict[str, int]:
        """Return the counters that were answered, by reason; each field has its own return code and type."""
        counters: dict[str, int] = {}
        for answer in answers:
            reason = self._fields.get(answer.fieldId)
            if reason is not None and answer.nvmlReturn == 0 and answer.valueType in _LONG_TYPES:
                counters[reason] = int(answer.value.ullVal)
        return counters


def _percent(ns_per_s: float) -> float:
    """Convert nanoseconds per second into percent."""
    return ns_per_s * 1e-7
