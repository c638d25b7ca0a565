"""Starts of which little is seen: a download over a slow line, a GPU without a list of processes, none."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from random import Random

import pytest
from msgspec.structs import replace

from sparktop.analysis.loading import STUCK
from sparktop.model.event import Finding, Sure
from sparktop.model.node import NodeSample
from tests.findings import start_stall
from tests.findings.start_stall import Seen, Shows, autotunes, blocked, play


def downloads(_: float, seen: Seen, dice: Random, *, mb_per_s: float) -> None:
    """Fetch weights over a slow line."""
    seen.net, seen.cpu = mb_per_s * 1e6, dice.uniform(0.5, 3)


def played(monkeypatch: pytest.MonkeyPatch, show: Shows, gpus: str) -> Sequence[Finding]:
    """Return what is found of a start on a machine whose GPUs are "listed", "unlisted" or "unseen"."""
    sample = start_stall._sample

    def changed(at: float, seen: Seen, rank: int, dice: Random) -> NodeSample:
        one = sample(at, seen, rank, dice)
        shown = tuple(replace(gpu, processes=None) for gpu in one.gpus) if gpus == "unlisted" else ()
        return one if gpus == "listed" else replace(one, gpus=shown)

    monkeypatch.setattr(start_stall, "_sample", changed)
    return play(Random(1), show, phase="GPU context")  # noqa: S311 - a simulation


@pytest.mark.parametrize("mb_per_s", [0.3, 1.0, 5.0])
def test_a_slow_download_moves(monkeypatch: pytest.MonkeyPatch, mb_per_s: float) -> None:
    """A line of a few Mbit/s is slow, but its start does not hang."""
    assert not played(monkeypatch, partial(downloads, mb_per_s=mb_per_s), "listed")


def test_a_gpu_whose_processes_are_not_listed_may_be_the_one_that_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in a container, or with MIG: its work is that of the start, its rest shows that nothing moves."""

    def works(second: float, seen: Seen, dice: Random) -> None:
        autotunes(second, seen, dice)
        seen.cpu = dice.uniform(1, 5)

    assert not played(monkeypatch, works, "unlisted")
    monkeypatch.undo()
    found = played(monkeypatch, blocked, "unlisted")
    assert {(one.kind, one.sure) for one in found} == {(STUCK, Sure.LIKELY)}
    assert "not used yet" not in found[-1].line


def test_without_a_gpu_in_sight_it_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is claimed of a GPU that no reader sees, and no alert is raised."""
    found = played(monkeypatch, blocked, "unseen")
    assert {(one.sure, one.severity) for one in found} == {(Sure.UNKNOWN, None)}
    assert found[-1].evidence == (("unknown", "a machine whose GPU is not seen"),)
