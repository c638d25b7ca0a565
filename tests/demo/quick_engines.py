"""Simulated engines for tests, a hundred times as fast as those of the demo."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from sparktop.demo.engine import LiveEngine
from sparktop.demo.engine_page import EngineHistograms
from sparktop.simulation.calibration import SOLO
from sparktop.simulation.engine import Engine, EngineProfile

QUICK = replace(
    SOLO,
    cost=replace(SOLO.cost, weights_one_s=2e-4, weights_all_s=2e-3, row_s=1e-6),
    wake_s=1e-4,
    jitter=0.0,
)
"""Steps of a fifth of a millisecond."""


def live_engine(clock: Callable[[], float], profile: EngineProfile = QUICK) -> LiveEngine:
    """Return an engine that follows `clock`."""
    histograms = EngineHistograms(profile.max_model_len)
    engine = Engine(profile, seed=1, start_s=clock(), on_end=histograms.count_end)
    return LiveEngine(engine, histograms, clock=clock)


StartServer = Callable[[LiveEngine], Awaitable[str]]
"""Serves an engine and gives the URL."""
