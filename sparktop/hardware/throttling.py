"""Why a GPU runs slower than it could: the reasons of this moment, and the share of time each took."""

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
"""Bits of nvmlClocksEventReason* in nvml.h; the idle bit is no throttling."""

_POLICY_FIELDS = {74: "software power cap", 75: "software thermal", 76: "sync boost"}
"""NVML_FI_DEV_PERF_POLICY_*: the same counters under numbers that never moved."""
_EVENT_REASONS = ("software thermal", "hardware thermal", "hardware power brake")
"""NVML_FI_DEV_CLOCKS_EVENT_REASON_*_SLOWDOWN, in the order of their numbers."""
_FIRST_NUMBERS = (((580, 82), 269), ((580, 65, 7), None), ((575,), 251))
"""Where those numbers begin, from which driver on, newest first.

They moved: driver 580.65.06 answers to 251-253 and calls 269-271 power smoothing, 580.82 has it the other way
round. The header that nvidia-ml-py was made from says nothing of the driver that is asked, so its names
cannot be trusted; what lies between the two versions is not known.
"""
_LONG_TYPES = frozenset({2, 3})
"""nvmlValueType_t of 64-bit counters (unsigned long, unsigned long long)."""
_SHARE_MAX_PERCENT = 110.0
"""Above it the counter's unit is another one; between 100 % and this, the driver counted a little late."""


def reason_words(bits: int) -> tuple[str, ...]:
    """Give the active reasons of a clocks-event mask as words, in the order of their bits."""
    known = [word for bit, word in _REASONS.items() if bits & bit]
    unknown = bits & ~(_IDLE | sum(_REASONS))
    return (*known, f"reason 0x{unknown:x}") if unknown else tuple(known)


def throttle_fields(driver: str | None) -> dict[int, str]:
    """Give the field numbers of the throttle counters for a driver's version, with the reason each counts."""
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
    """Turns one GPU's throttle counters (nanoseconds) into shares of the time between two readings."""

    def __init__(self, fields: Mapping[int, str]) -> None:
        """Read the fields of `throttle_fields`."""
        self._fields = fields
        self._rates: CounterRates[str] = CounterRates()
        self._first: dict[str, tuple[float, int]] = {}
        """Each counter as it was first seen, to hold its unit against wall time."""

    def read(self, nvml: Nvml, index: int, handle: object, now: float) -> dict[str, float | None]:
        """Give percent by reason; empty when this driver has no counters, None where a share is unknown."""
        answers = nvml.ask(now, index, "nvmlDeviceGetFieldValues", handle, list(self._fields))
        if answers is None:
            return {}
        counters = self._counters(answers)
        rates = self._rates.step(counters, now)
        return {reason: self._share(reason, count, rates[reason], now) for reason, count in counters.items()}

    def _share(self, reason: str, count: int, per_second: float | None, now: float) -> float | None:
        """Percent of the time since the reading before; None when it cannot be one."""
        first_at, first = self._first.setdefault(reason, (now, count))
        if count < first:
            self._first[reason] = (now, count)
        elif now > first_at and _percent((count - first) / (now - first_at)) > _SHARE_MAX_PERCENT:
            return None
        percent = None if per_second is None else _percent(per_second)
        return None if percent is None or percent > _SHARE_MAX_PERCENT else min(100.0, percent)

    def _counters(self, answers: Iterable[Any]) -> dict[str, int]:
        """The counters that were answered, by reason; a field has a return code and a type of its own."""
        counters: dict[str, int] = {}
        for answer in answers:
            reason = self._fields.get(answer.fieldId)
            if reason is not None and answer.nvmlReturn == 0 and answer.valueType in _LONG_TYPES:
                counters[reason] = int(answer.value.ullVal)
        return counters


def _percent(ns_per_s: float) -> float:
    """Nanoseconds a second as a share of the time."""
    return ns_per_s * 1e-7
