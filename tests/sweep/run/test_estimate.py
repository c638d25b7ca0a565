"""The stated range of a sweep's duration, held against simulated servers of all kinds in virtual time."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from sparktop.demo.scenario import Scenario
from sparktop.graphics.numbers import range_words
from sparktop.model.instant import TimeRange
from sparktop.simulation.calibration import CLUSTER_TP2, SOLO
from sparktop.sweep.plan.presets import BUILT_IN, make_plan
from stage.sweep import RehearsedSweep

pytestmark = pytest.mark.long

SEEDS = (102, 104, 107)
KINDS = ("slow", "fast", "few slots", "many slots", "TP=2", "router")
LEAST_RIGHT = 3
"""Set-ups of three kinds whose sweep lasts as long as its range says."""


class TimedSweep(RehearsedSweep):
    """A sweep that records what its view said until its first run: (time, phase, range of the rest)."""

    def __init__(self, scenario: Scenario, *, backends: int, seed: int) -> None:
        self.said: list[tuple[float, str, TimeRange | None]] = []
        super().__init__(scenario=scenario, backends=backends, seed=seed)

    def look(self) -> None:
        """Update the view, and record what it says."""
        super().look()
        if any(phase == "running" for _, phase, _ in self.said):
            return
        view = self.view()
        phase = "" if view.moment is None else view.moment.phase
        self.said.append((self.rehearsal.now_s, phase, view.left))


def made(kind: str, seed: int) -> tuple[TimedSweep, str]:
    """Return a sweep of a simulated server of this kind, and the name of its target."""
    dice = random.Random(f"{kind}-{seed}")  # noqa: S311 - set-ups, no secrets
    profile = CLUSTER_TP2 if kind == "TP=2" else SOLO
    slower = {"slow": dice.uniform(2, 4), "fast": dice.uniform(0.2, 0.5)}.get(kind, dice.uniform(0.7, 1.5))
    slots = {"few slots": (4, 6, 8, 12), "many slots": (128, 192, 256)}.get(kind, (32, 48, 64))
    cost = replace(
        profile.cost,
        weights_one_s=slower * profile.cost.weights_one_s,
        weights_all_s=slower * profile.cost.weights_all_s,
        row_s=slower * profile.cost.row_s,
    )
    profile = replace(profile, cost=cost, max_num_seqs=dice.choice(slots))
    strategy = dice.choice(("simple-shuffle", "least-busy", "round-robin"))
    routed = kind == "router"
    scenario = Scenario(kind, strategy, profile=profile)
    return TimedSweep(scenario, backends=1 + routed, seed=seed), "proxy" if routed else "spark-a"


@pytest.mark.timeout(600)
async def test_a_sweep_lasts_as_long_as_was_said() -> None:
    """Before any run and after the warm-up, the real time lies in the range on three set-ups."""
    early, late, told = 0, 0, []
    for seed in SEEDS:
        kind = KINDS[seed % len(KINDS)]
        sweep, name = made(kind, seed)
        await sweep.play(make_plan(BUILT_IN[0], [sweep.targets[name]]))
        end = sweep.rehearsal.now_s
        starts = [next(one for one in sweep.said if one[1] == phase) for phase in ("preparing", "running")]
        rights = []
        for at, _, left in starts:
            assert left is not None
            rights.append(left.least_s <= end - at <= left.most_s)
            told.append(f"{kind}: {range_words(left.least_s, left.most_s)}, real {end - at:.0f} s")
        early, late = early + rights[0], late + rights[1]
    assert min(early, late) >= LEAST_RIGHT, "\n".join(told)
