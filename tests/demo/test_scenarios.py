"""The demo's scenarios in virtual time: each shows what its name says."""

from __future__ import annotations

from functools import cache

import pytest

from sparktop.analysis.balance.judge import judge
from sparktop.analysis.balance.load_grid import GroupLoad, LoadTrack
from sparktop.demo.scenario import DEFAULT_SCENARIO, SCENARIOS
from sparktop.model.snapshot import Snapshot
from stage.rehearsal import Rehearsal

pytestmark = pytest.mark.long

Loads = tuple[float, ...]


class Played:
    """A scenario that is played once, as far as any test needs: loads and snapshot of each second."""

    def __init__(self, name: str) -> None:
        """Prepare the scenario, without playing it."""
        self._rehearsal = Rehearsal(nodes=2, scenario=SCENARIOS[name])
        self._loads: list[Loads] = []
        self._pictures: list[Snapshot] = []

    def until(self, seconds: int) -> tuple[tuple[Loads, ...], Snapshot]:
        """Return the loads of each second up to `seconds`, and the last snapshot."""
        while len(self._loads) < seconds:
            snapshot = self._rehearsal.play(1.0).snapshot()
            self._loads.append(tuple((one.running or 0) + (one.waiting or 0) for one in snapshot.backends))
            self._pictures.append(snapshot)
        return tuple(self._loads[:seconds]), self._pictures[seconds - 1]


played = cache(Played)


def watched(name: str, seconds: int = 90) -> tuple[tuple[Loads, ...], Snapshot]:
    """Return the loads of both servers for each second, and the last snapshot."""
    return played(name).until(seconds)


def leads(loads: tuple[Loads, ...]) -> list[int]:
    """Return which server holds over 90 % of the requests, one entry for each change."""
    told: list[int] = []
    for load in loads:
        for backend in range(2):
            if load[backend] > 0.9 * sum(load) > 0 and told[-1:] != [backend]:
                told.append(backend)
    return told


def test_the_default_swings_within_twenty_seconds() -> None:
    """In the default scenario all requests move to the other server three times in the first 20 s."""
    assert next(iter(SCENARIOS)) == DEFAULT_SCENARIO == "oscillation"
    loads, snapshot = watched("oscillation")
    assert leads(loads[:20])[:4] == [0, 1, 0, 1]
    assert len(leads(loads)) >= 14
    assert snapshot.routers[0].strategy == "least-busy"


def test_a_cooldown_swings_from_none_to_all() -> None:
    """In "cooldown" each server in turn is empty while the other has at least 60 requests."""
    loads, _ = watched("cooldown", 120)
    assert len(leads(loads)) >= 4
    assert any(load[0] == 0 and load[1] >= 60 for load in loads)
    assert any(load[1] == 0 and load[0] >= 60 for load in loads)


@pytest.mark.parametrize("name", ["steady", "memory", "hot"])
def test_the_others_do_not_swing(name: str) -> None:
    """In the other scenarios no server ever holds nearly all requests."""
    assert leads(watched(name)[0][5:]) == []


def test_memory_falls_to_the_limit_on_one_machine() -> None:
    """In "memory" the first machine falls below 8 GiB of headroom in four minutes, the second does not."""
    _, snapshot = watched("memory", 240)
    headroom = [node.sample.memory.headroom_bytes or 0 for node in snapshot.nodes if node.sample]
    assert headroom[0] < 8 * 2**30 < 20 * 2**30 < headroom[1]
    assert [alert.id for alert in snapshot.alerts] == ["node:spark-a:headroom"]


def test_the_faulty_clock_is_seen() -> None:
    """In "pd-fault", only the second machine has a slow clock."""
    _, snapshot = watched("pd-fault")
    words = [node.speed.word if node.speed else None for node in snapshot.nodes]
    assert words[1] == "slow clock"
    assert words[0] != "slow clock"


@pytest.mark.parametrize(
    ("name", "word"), [("oscillation", "oscillating"), ("cooldown", "oscillating"), ("steady", "balanced")]
)
def test_the_judge_of_balance_has_the_word_within_75_seconds(name: str, word: str) -> None:
    """The judge reaches the expected verdict from samples of 75 s."""
    loads, snapshot = watched(name, 75)
    times = [float(second) for second in range(1, 76)]
    tracks = [
        LoadTrack(f"spark-{place}", times, [load[place] for load in loads], slots=48) for place in (0, 1)
    ]
    lives = [backend.e2e.mean_s for backend in snapshot.backends if backend.e2e.mean_s]
    assert judge(GroupLoad("proxy", tracks, e2e_s=sum(lives) / len(lives)), 75.0).word == word
