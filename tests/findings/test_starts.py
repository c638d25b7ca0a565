"""Starts of which little is seen: a download over a slow line, a GPU without a list of processes, none."""

from __future__ import annotations

from functools import partial
from random import Random

import pytest

from sparktop.analysis.loading import STUCK
from sparktop.model.event import Sure
from tests.findings.start_stall import Seen, autotunes, blocked, play
from tests.findings.study import seeded


def downloads(_: float, seen: Seen, dice: Random, *, mb_per_s: float) -> None:
    """Fetch weights over a slow line."""
    seen.net, seen.cpu = mb_per_s * 1e6, dice.uniform(0.5, 3)


@pytest.mark.parametrize("mb_per_s", [0.3, 1.0, 5.0])
def test_a_slow_download_moves(mb_per_s: float) -> None:
    """A line of a few Mbit/s is slow, but its start does not hang."""
    assert not play(seeded(1), partial(downloads, mb_per_s=mb_per_s), phase="GPU context")


def test_a_gpu_whose_processes_are_not_listed_may_be_the_one_that_works() -> None:
    """As in a container, or with MIG: its work is that of the start, its rest shows that nothing moves."""

    def works(second: float, seen: Seen, dice: Random) -> None:
        autotunes(second, seen, dice)
        seen.cpu = dice.uniform(1, 5)

    assert not play(seeded(1), works, phase="GPU context", gpus="unlisted")
    found = play(seeded(1), blocked, phase="GPU context", gpus="unlisted")
    assert {(one.kind, one.sure) for one in found} == {(STUCK, Sure.LIKELY)}
    assert "not used yet" not in found[-1].line


def test_without_a_gpu_in_sight_it_is_unknown() -> None:
    """Nothing is claimed of a GPU that no reader sees, and no alert is raised."""
    found = play(seeded(1), blocked, phase="GPU context", gpus="unseen")
    assert {(one.sure, one.severity) for one in found} == {(Sure.UNKNOWN, None)}
    assert found[-1].evidence == (("unknown", "0 GPUs are seen, its ranks: 1"),)
