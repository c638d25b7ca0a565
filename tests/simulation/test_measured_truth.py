"""The measuring of events against an engine whose true rates are known."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparktop.model.load import Level, LoadMode
from sparktop.simulation.engine import Engine, EngineProfile
from sparktop.sweep.result.level import level_result
from sparktop.sweep.result.measure import collect
from sparktop.sweep.result.results import LevelResult
from stage.clients import ClosedLoop, DirectWay, VirtualTime

Maker = Callable[..., EngineProfile]
TRUE_STEP_S = 0.010 * 2 + 0.0001 * 4
"""A decode step of four rows: 10 ms x 4 ^ 0.5 for weights, 0.1 ms a row."""


def measured(profile: EngineProfile, level: Level) -> tuple[LevelResult, Engine]:
    time = VirtualTime([Engine(profile)])
    loop = ClosedLoop(time, DirectWay(time), level, stagger_s=1.0)
    loop.start()
    time.run()
    return level_result(level, collect(loop.events)), time.engines[0]


@pytest.mark.parametrize(
    "level",
    [
        Level("x", 4, 8, 40, runs=3),
        Level("x", 4, 8, 40, mode=LoadMode.STEADY, duration_s=20.0),
        Level("x", 4, 60, 40, mode=LoadMode.STEADY, duration_s=20.0),
    ],
    ids=["burst", "steady", "steady with long prompts"],
)
def test_pure_decode_is_the_true_rate(profile: Maker, level: Level) -> None:
    """The rate of four streams is 4 / step time, whatever prompts are computed between their steps."""
    figures, _ = measured(profile(), level)
    assert figures.pure_decode_tps is not None
    assert figures.pure_decode_tps.mean == pytest.approx(4 / TRUE_STEP_S, rel=1e-6)


def test_sustained_is_what_the_engine_made_in_that_time(profile: Maker) -> None:
    """Over 60 s the sustained rate is the engine's own, ramp left out, to 2 %."""
    level = Level("x", 4, 8, 40, mode=LoadMode.STEADY, duration_s=60.0)
    figures, engine = measured(profile(), level)
    assert figures.sustained_tps is not None
    assert figures.sustained_tps.mean == pytest.approx(engine.tally.generation_tokens / 60.0, rel=0.02)
    assert figures.tokens.generated == engine.tally.generation_tokens
