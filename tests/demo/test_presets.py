"""The sweeps that the demo offers."""

from __future__ import annotations

import pytest

from sparktop.demo.command import demo_sweeps
from sparktop.model.targets import BackendTarget, RouterTarget
from sparktop.sweep.plan.presets import make_plan
from stage.sweep import RehearsedSweep

pytestmark = pytest.mark.long

BACKENDS = (BackendTarget("spark-a", "http://127.0.0.1:1"), BackendTarget("spark-b", "http://127.0.0.1:2"))
ROUTERS = (RouterTarget("proxy", "http://127.0.0.1:3"),)
RIVALS = (RouterTarget("simple-shuffle", "http://127.0.0.1:4", "simple-shuffle"),)
LONGEST_S = 180.0


async def test_the_longest_is_over_within_three_minutes_and_to_be_believed() -> None:
    """F6 takes at most three minutes on the default servers, without doubts about its levels."""
    *_, preset = demo_sweeps(BACKENDS, ROUTERS, RIVALS)
    sweep = RehearsedSweep(rivals=("simple-shuffle",))
    plan = make_plan(preset, [sweep.targets[name] for name in preset.targets])
    began_s = sweep.rehearsal.now_s
    await sweep.play(plan)
    assert sweep.rehearsal.now_s - began_s < LONGEST_S
    assert sweep.result is not None
    assert sweep.result.status == "done"
    marks = {mark.code for row in sweep.view().rows for mark in row.marks if mark.doubt}
    assert not marks
    assert sweep.view().verdict


@pytest.mark.parametrize(
    ("scenario", "targets", "concurrency", "lengths"),
    [
        ("topologies", ("spark-a", "spark-b", "proxy", "simple-shuffle"), (1, 2, 4, 8, 16, 32, 64), (1024,)),
        ("recipes", ("spark-a", "spark-b"), (1, 2, 4, 5, 8, 10, 16), (2048,)),
        ("long-context", ("spark-a", "spark-b"), (1,), (5000, 20_000, 39_000, 80_000, 128_000)),
    ],
)
def test_what_a_scenario_compares(
    scenario: str, targets: tuple[str, ...], concurrency: tuple[int, ...], lengths: tuple[int, ...]
) -> None:
    """F6 sweeps the scenario's servers and routers, with the levels of the published tables."""
    usual, compared = demo_sweeps(BACKENDS, ROUTERS, RIVALS, scenario=scenario)
    assert (usual.key, compared.key) == ("f5", "f6")
    assert (compared.targets, compared.concurrency, compared.prompt_lengths) == (
        targets,
        concurrency,
        lengths,
    )
