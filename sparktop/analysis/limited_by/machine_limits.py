"""Limits outside the engine: clock and power of its machines, one CPU core, the network between its ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean, median

from sparktop.analysis.limited_by.evidence import Evidence, Look, Machine, MachineLook
from sparktop.analysis.speed_state import SLOW_CLOCK, THROTTLED
from sparktop.model.limit import Limit, LimitKind

BUSY_GPU_PERCENT = 80.0
"""A GPU with requests all the time that is used less waits for something else."""
_FULL_CORE_PERCENT = 88.0
"""A core whose median use over the samples is this much is full: threads move between cores."""
_FULL_CORE_SHARE = 0.9
"""CPU cores that a process with one busy thread uses when that thread never waits."""
_THROTTLED_SHARE = 0.8
"""A throttled clock is a limit below this share of the clock that the GPU has reached under load."""
_FOREIGN_PERCENT = 50.0
"""A GPU that is used at least this much while its server has nothing to do works for another program."""
_FEWEST_FOREIGN = 3
"""Least number of samples of such a GPU."""
_AROUND_S = 2.1
"""A server had nothing to do if all its polls up to this many seconds before and after say so."""
LINK_SHARE = 0.4
"""Share of the time that the link between ranks is in use from which on it is the largest part of a step."""


def recent(machine: Machine, window_s: float) -> list[MachineLook]:
    """Return the samples of a machine that lie in the window of a verdict."""
    if not machine.looks:
        return []
    since = machine.looks[-1].at - window_s - 0.5
    return [look for look in machine.looks if look.at >= since]


def sees_clock(evidence: Evidence) -> bool:
    """Return whether the clock of each machine's GPU is read, and with several machines the link between.

    A machine that is read without its GPU, or without that link, cannot show whether it is slow.
    """
    several = evidence.spans > 1
    seen = [
        machine
        for machine in evidence.machines
        if (looks := recent(machine, evidence.window_s))
        and any(look.clock_mhz is not None for look in looks)
        and (not several or any(look.link_share is not None for look in looks))
    ]
    return len(seen) >= evidence.spans


def sees_cores(evidence: Evidence) -> bool:
    """Return whether the use of each machine's CPU cores is read."""
    seen = [
        machine
        for machine in evidence.machines
        if any(look.core_percent is not None for look in recent(machine, evidence.window_s))
    ]
    return len(seen) >= evidence.spans


def gpu_percent(evidence: Evidence) -> float | None:
    """Return the mean use in percent of the busiest GPUs of all machines; None if one of them is unknown."""
    if not evidence.machines or len(evidence.machines) < evidence.spans:
        return None
    means = [_mean(look.gpu_percent for look in recent(one, evidence.window_s)) for one in evidence.machines]
    known = [mean for mean in means if mean is not None]
    return fmean(known) if len(known) == len(means) else None


def foreign_gpu_percent(evidence: Evidence) -> float | None:
    """Return the mean use in percent of the machine's GPU while the server had nothing to do.

    It is the use by other programs. None if it is small, or not seen often enough to be sure.
    """
    if evidence.spans > 1 or len(evidence.machines) != 1:
        return None
    since = evidence.looks[-1].at - evidence.window_s
    used = [
        look.gpu_percent
        for look in recent(evidence.machines[0], evidence.window_s)
        if look.gpu_percent is not None and look.at >= since and _was_empty(evidence.looks, look.at)
    ]
    mean = fmean(used) if len(used) >= _FEWEST_FOREIGN else 0.0
    return mean if mean >= _FOREIGN_PERCENT else None


def _was_empty(looks: Sequence[Look], at: float) -> bool:
    """Return whether a server had no request and generated nothing at the time `at`, and shortly before."""
    near = [look for look in looks if at - _AROUND_S <= look.at <= at + _AROUND_S]
    empty = all(look.running == 0 and not look.waiting for look in near)
    return len(near) > 1 and empty and near[0].generated == near[-1].generated


def power_limit(evidence: Evidence) -> Limit | None:
    """Return the limit by a machine whose clock is far below what its GPU can do; None if there is none."""
    for machine in evidence.machines:
        word = machine.speed.word
        clock = _mean(look.clock_mhz for look in recent(machine, evidence.window_s))
        usual = machine.usual_mhz
        low = clock is not None and usual is not None and clock < _THROTTLED_SHARE * usual
        if word == SLOW_CLOCK or (word == THROTTLED and low):
            where = f"{machine.name}: " if evidence.spans > 1 else ""
            reason = f"{where}{machine.speed.reason}"
            return Limit(LimitKind.POWER, reason, None, clock, usual, "MHz")
    return None


def cpu_limit(evidence: Evidence) -> Limit | None:
    """Return the limit by a full CPU core while the GPU waits; None if there is none.

    The caller has checked that requests run all the time.
    """
    used = gpu_percent(evidence)
    if used is not None and used > BUSY_GPU_PERCENT:
        return None
    waits = "" if used is None else f", the GPU is busy only {used:.0f} % of the time"
    server = evidence.server_cores
    if server is not None and server >= _FULL_CORE_SHARE:
        reason = f"the HTTP server uses {server:.2f} cores{waits}"
        return Limit(LimitKind.CPU, reason, None, 100 * server, 100.0, "%")
    if used is None:
        return None
    for machine in evidence.machines:
        cores = [
            look.core_percent for look in recent(machine, evidence.window_s) if look.core_percent is not None
        ]
        full = median(cores) if cores else 0.0
        if full >= _FULL_CORE_PERCENT:
            where = f" of {machine.name}" if evidence.spans > 1 else ""
            return Limit(LimitKind.CPU, f"one{where} is {full:.0f} % used{waits}", None, full, 100.0, "%")
    return None


def network_limit(evidence: Evidence) -> Limit | None:
    """Return the limit by the link between the machines of one engine; None if there is none."""
    if evidence.spans < 2:  # noqa: PLR2004 - ranks on one machine do not use the network
        return None
    for machine in evidence.machines:
        looks = recent(machine, evidence.window_s)
        share = _mean(look.link_share for look in looks)
        if share is None or share < LINK_SHARE:
            continue
        carried = _mean(look.link_bytes_per_s for look in looks) or 0.0
        name = next((look.link for look in reversed(looks) if look.link), "link")
        limit = carried / share
        reason = f"{name} of {machine.name} carries {_rate(carried)} of {_rate(limit)} GB/s on average"
        return Limit(LimitKind.NETWORK, reason, None, carried / 1e9, limit / 1e9, "GB/s")
    return None


def _rate(bytes_per_s: float) -> str:
    giga = bytes_per_s / 1e9
    return f"{giga:.1f}" if giga >= 1 else f"{giga:.2f}"


def _mean(values: Iterable[float | None]) -> float | None:
    known: Sequence[float] = [value for value in values if value is not None]
    return fmean(known) if known else None
