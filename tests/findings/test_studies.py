"""Starts of which little is seen: a download over a slow line, a GPU without a list of processes, none.

Work for nobody while the server's machine, which lists its connections, does not answer.

A short form of the study of each rule.
"""

from __future__ import annotations

import re
from functools import partial
from random import Random

import pytest

from sparktop.analysis.loading import STUCK
from sparktop.model.event import Sure
from sparktop.model.explained import FINDINGS
from tests.findings.abandoned import Call, Play, played
from tests.findings.start_stall import Seen, autotunes, blocked, play
from tests.findings.study import Family, counted, families, seeded


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


LEAKED = (Call(-50.0, 1e6, -20.0),)
"""One request that never ends, whose client left before the watch began."""


@pytest.mark.parametrize(
    ("silent", "shortest_s", "longest_s"),
    [((60.0, 71.0), 120.0, 150.0), ((60.0, 100.0), 30.0, 60.0)],
    ids=["a missed poll", "more than 30 s"],
)
def test_only_a_long_silence_of_the_machine_ends_what_was_seen(
    silent: tuple[float, float], shortest_s: float, longest_s: float
) -> None:
    """A machine that misses a poll does not restart the time without clients; longer silence does."""
    chance = seeded(1)
    lasted_s = played(Play(LEAKED, silent=silent), chance)[-1].values["window_s"]
    assert isinstance(lasted_s, float)
    assert shortest_s <= lasted_s <= longest_s


def test_other_requests_begin_anew() -> None:
    """When one of two abandoned requests is aborted at 60 s, the other has run alone for at most 90 s."""
    calls = (*LEAKED, LEAKED[0]._replace(ends=60.0, counted=False))
    lasted_s = played(Play(calls), seeded(1))[-1].values["window_s"]
    assert isinstance(lasted_s, float)
    assert 60.0 <= lasted_s <= 90.0


RUNS = 6


@pytest.mark.long
@pytest.mark.parametrize("family", families(), ids=lambda one: f"{one.kind}/{one.name}")
def test_runs_get_the_verdict_that_they_deserve(family: Family) -> None:
    """Few runs of each family keep the limits of the study."""
    assert counted(family, RUNS).is_good


@pytest.mark.long
def test_the_advice_of_a_finding_is_that_of_the_words() -> None:
    """What a finding says to do stands among the words of its kind, apart from what only the rule knows."""
    played = {(one.kind, one.fix) for family in families() for one in family.run(seeded(family.name))}
    advised = [(kind, fix) for kind, fix in sorted(played, key=str) if fix is not None]
    assert {kind for kind, _ in advised} == FINDINGS.keys() - {"yardsticks"}
    for kind, fix in advised:
        words = FINDINGS[kind]
        known = [
            re.sub(r"\\{\w+\\}", ".+", re.escape(one)) for one in (words.remedy, *words.remedies.values())
        ]
        assert any(re.fullmatch(one, fix) for one in known), (kind, fix)
