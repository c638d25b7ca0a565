"""Why a GPU's clock is reduced (throttled): the active reasons, and the share of time of each reason."""

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
"""Bits of nvmlClocksEventReason* in nvml.h, without the bit for an idle GPU, which is not throttling."""

_POLICY_FIELDS = {74: "software power cap", 75: "software thermal", 76: "sync boost"}
"""Field numbers of NVML_FI_DEV_PERF_POLICY_*: counters of throttled time whose numbers are the same in every
driver."""
_EVENT_REASONS = ("software thermal", "hardware thermal", "hardware power brake")
"""Reasons counted by the fields NVML_FI_DEV_CLOCKS_EVENT_REASON_*_SLOWDOWN, in the order of the field
numbers."""
_FIRST_NUMBERS = (((580, 82), 269), ((580, 65, 7), None), ((575,), 251))
"""(minimal driver version, field number of the first of `_EVENT_REASONS`), newest version first. The numbers
moved: driver 580.65.06 answers to 251-253 and uses 269-271 for power smoothing, 580.82 has it the other way
round. nvidia-ml-py's constants come from one version of the header, whichever driver is installed, so they
cannot be trusted. None: the numbers of the versions in between are unknown."""
_LONG_TYPES = frozenset({2, 3})
"""nvmlValueType_t of 64-bit counters (unsigned long, unsigned long long)."""
_SHARE_MAX_PERCENT = 110.0
"""A share of time above this means that the counter has another unit. From 100 % up to this, the driver only
counted a little late."""


def reason_words(bits: int) -> tuple[str, ...]:
    """Return the names of the throttle reasons that are active in `bits`, in the order of their bits.

    `bits` is a mask of NVML's clocks event reasons; all bits without a name become one "reason 0x…".
    """
    known = [word for bit, word in _REASONS.items() if bits & bit]
    unknown = bits & ~(_IDLE | sum(_REASONS))
    return (*known, f"reason 0x{unknown:x}") if unknown else tuple(known)


def throttle_fields(driver: str | None) -> dict[int, str]:
    """Return the NVML fields that count throttled time in the driver version `driver`.

    The result has the throttle reason by field number.
    """
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
    """Converts one GPU's counters of throttled time (ns) into shares of the time between two readings."""

    def __init__(self, fields: Mapping[int, str]) -> None:
        """Prepare to read the NVML fields `fields`.

        `fields` has the throttle reason by field number, as `throttle_fields` returns it.
        """
        self._fields = fields
        self._rates: CounterRates[str] = CounterRates()
        self._first: dict[str, tuple[float, int]] = {}
        """By reason: time and value of the counter's first reading, to check the counter's unit against
        elapsed time."""

    def read(self, nvml: Nvml, index: int, handle: object, now: float) -> dict[str, float | None]:
        """Return the throttled percentage of the time since the previous reading, by throttle reason.

        Percentages are 0 to 100, and None if unknown, as in the first reading. Return {} if this driver has
        no such counters.
        """
        answers = nvml.ask(now, index, "nvmlDeviceGetFieldValues", handle, list(self._fields))
        if answers is None:
            return {}
        counters = self._counters(answers)
        rates = self._rates.step(counters, now)
        return {reason: self._share(reason, count, rates[reason], now) for reason, count in counters.items()}

    def _share(self, reason: str, count: int, per_second: float | None, now: float) -> float | None:
        """Return the percentage (0 to 100) of time that was throttled for `reason`.

        `count` is the value of the reason's counter, `per_second` its increase per second since the previous
        reading. Return None if `per_second` is None or the percentage is implausible.
        """
        first_at, first = self._first.setdefault(reason, (now, count))
        if count < first:
            self._first[reason] = (now, count)
        elif now > first_at and _percent((count - first) / (now - first_at)) > _SHARE_MAX_PERCENT:
            return None
        percent = None if per_second is None else _percent(per_second)
        return None if percent is None or percent > _SHARE_MAX_PERCENT else min(100.0, percent)

    def _counters(self, answers: Iterable[Any]) -> dict[str, int]:
        """Return the throttled nanoseconds by reason, from NVML's results.

        A field that NVML reports with an error, or with a type other than a long integer, is left out.
        """
        counters: dict[str, int] = {}
        for answer in answers:
            reason = self._fields.get(answer.fieldId)
            if reason is not None and answer.nvmlReturn == 0 and answer.valueType in _LONG_TYPES:
                counters[reason] = int(answer.value.ullVal)
        return counters


def _percent(ns_per_s: float) -> float:
    """Convert throttled nanoseconds per second into a percentage of time."""
    return ns_per_s * 1e-7
