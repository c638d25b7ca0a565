"""The start of a simulated server, phase by phase, as its machine shows it."""

from __future__ import annotations

from typing import NamedTuple

_GIB = 2**30
CONTEXT_BYTES, WEIGHTS_BYTES, WHOLE_BYTES = _GIB // 2, 57 * _GIB, 83 * _GIB
_CONTEXT, _WEIGHTS, _COMPILE, _POOL, _GRAPHS = 0.12, 0.2, 0.52, 0.78, 0.82
"""Shares of the start at which a phase begins."""
_BURST_S, _BURSTS_EVERY_S = 1.5, 4.0


class StartingMachine(NamedTuple):
    """What a machine shows while its server starts."""

    engine_bytes: int
    """GPU memory of the engine."""
    busy: float
    """Share of the time in which the GPU works."""
    cpu_percent: float
    """CPU use of the engine's process."""


def starting(passed_s: float, takes_s: float) -> StartingMachine:
    """Return what a machine shows `passed_s` seconds after the begin of a start that takes `takes_s`."""
    share = passed_s / takes_s if takes_s > 0 else 1.0
    burst = float(passed_s % _BURSTS_EVERY_S < _BURST_S)
    if share < _CONTEXT:
        return StartingMachine(0, 0.0, 94.0)
    if share < _WEIGHTS:
        return StartingMachine(CONTEXT_BYTES, 0.0, 60.0)
    if share < _COMPILE:
        read = (share - _WEIGHTS) / (_COMPILE - _WEIGHTS)
        return StartingMachine(CONTEXT_BYTES + round(read * (WEIGHTS_BYTES - CONTEXT_BYTES)), 0.05, 100.0)
    if share < _POOL:
        return StartingMachine(WEIGHTS_BYTES, 0.0, 100.0)
    if share < _GRAPHS:
        pool = (share - _POOL) / (_GRAPHS - _POOL)
        return StartingMachine(WEIGHTS_BYTES + round(pool * (WHOLE_BYTES - WEIGHTS_BYTES)), 0.3, 100.0)
    return StartingMachine(WHOLE_BYTES, burst, 98.0)
