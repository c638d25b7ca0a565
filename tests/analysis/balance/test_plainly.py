"""The optimised computation of figures gives the results of their definitions, written out plainly."""

from __future__ import annotations

import cmath
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.analysis.balance.load_grid import LoadTrack, lay_out
from sparktop.analysis.balance.swings import find_swing


@given(loads=st.lists(st.integers(0, 40), min_size=30, max_size=256))
@settings(max_examples=25, deadline=None)
def test_the_spectrum_is_fourier_s(loads: list[int]) -> None:
    """The spectrum is that of a discrete Fourier transform written out as a sum."""
    rows = [[load, 40 - load, 0, 0] for load in loads]
    times = [float(second) for second in range(len(rows))]
    pair = [LoadTrack(name, times, [float(row[at]) for row in rows]) for at, name in enumerate("ab")]
    grid = lay_out(pair, times[-1], 1000.0)
    assert grid is not None
    swing = find_swing(grid, range(len(rows)), None)
    assert swing is not None
    if not swing.spectrum.values:
        assert swing.relative_rms < 1e-5
        return
    apart = [(load - (40 - load)) / 40 for load in loads]
    middle = sorted(apart)[len(apart) // 2]
    if len(apart) % 2 == 0:
        middle = (middle + sorted(apart)[len(apart) // 2 - 1]) / 2
    held = [max(middle - 0.5, min(middle + 0.5, value)) for value in apart]
    mean = sum(held) / len(held)
    size = len(held)
    tapered = [
        (value - mean) * (0.5 - 0.5 * math.cos(2 * math.pi * (at + 0.5) / size))
        for at, value in enumerate(held)
    ]
    power = [
        abs(sum(value * cmath.exp(-2j * math.pi * k * at / 512) for at, value in enumerate(tapered))) ** 2
        for k in range(256)
    ]
    whole = sum(power[1:])
    for period, part in zip(swing.spectrum.axis, swing.spectrum.values, strict=True):
        assert part == pytest.approx(power[round(512 / period)] / whole, abs=1e-9)
