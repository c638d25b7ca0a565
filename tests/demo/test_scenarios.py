"""The demo's scenarios in virtual time: each shows what its name says."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import pytest
from msgspec.structs import replace

from sparktop.analysis.balance.judge import judge
from sparktop.analysis.balance.load_grid import GroupLoad, LoadTrack
from sparktop.commands import demo as demo_command
from sparktop.demo.scenario import DEFAULT_SCENARIO, SCENARIOS, Plan
from sparktop.model.snapshot import Snapshot
from sparktop.simulation.calibration import CLUSTER_TP2, GX10_PATCHED, GX10_VANILLA, SOLO
from sparktop.simulation.routers import STRATEGIES
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


def test_a_request_of_the_default_lives_five_seconds() -> None:
    """In the default scenario a request takes about 5 s by the servers' own mean."""
    _, snapshot = watched("oscillation")
    means = [backend.e2e.mean_s for backend in snapshot.backends]
    assert all(mean_s is not None and 3.0 <= mean_s <= 5.5 for mean_s in means)


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


def test_steady_is_even() -> None:
    """In "steady" both servers always hold about half of the requests."""
    loads, _ = watched("steady")
    assert all(8 <= load[0] <= 24 for load in loads[5:])


def test_hot_machines_are_throttled() -> None:
    """In "hot" both machines are above 80 °C after four minutes and throttled by heat."""
    _, snapshot = watched("hot", 240)
    for node in snapshot.nodes:
        assert node.sample is not None
        (gpu,) = node.sample.gpus
        assert (gpu.temperature_c or 0) > 80
        assert (gpu.throttled_percent["software thermal"] or 0) > 10
        assert (gpu.sm_clock_mhz or 0) < 2400


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


def test_a_dripping_server_makes_tokens_slowly() -> None:
    """In "faulty", steps of the second server take over five times as long, and the first one restarts."""
    scenario = SCENARIOS["faulty"]
    costs = [scenario.profile_of(backend).cost.step_s(16, 1000, 0.0, 2405) for backend in range(2)]
    assert costs[1] > 5 * costs[0]
    assert scenario.restarts is not None
    assert scenario.restarts.every_s == 40.0
    assert scenario.restarts.backend == 0


def test_the_words_of_the_command_line_are_the_simulations() -> None:
    """Scenarios and strategies of the command line are those of the simulation, the default first."""
    told = {name: scenario.about for name, scenario in SCENARIOS.items()}
    assert list(told.items()) == list(demo_command.SCENARIOS.items())
    assert tuple(STRATEGIES) == demo_command.STRATEGIES


def test_a_plan_survives_its_way_to_a_child() -> None:
    """A plan is read back as it was written; its arguments override those of the scenario."""
    plan = Plan("cooldown", 3, 7, "round-robin", 5, ("http://127.0.0.1:1",))
    assert Plan.read(plan.line()) == plan
    assert (plan.chosen().strategy, plan.chosen().load) == ("round-robin", 5)
    assert Plan("cooldown").chosen() == SCENARIOS["cooldown"]
    assert Plan("cooldown", load=0).chosen().load == 0


def test_the_swing_has_one_period() -> None:
    """Changes of the lead follow each other after 4 to 7 s, about the duration of a request."""
    loads, _ = watched("oscillation")
    changes = [
        second
        for second, (before, after) in enumerate(pairwise(loads))
        if (before[0] > before[1]) != (after[0] > after[1])
    ]
    gaps = [later - earlier for earlier, later in pairwise(changes)]
    assert gaps
    assert all(4 <= gap <= 7 for gap in gaps)


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


def test_the_topologies_are_those_of_the_table() -> None:
    """In "topologies" two engines are behind two routers, and beside them is one over two machines."""
    scenario = SCENARIOS["topologies"]
    servers = scenario.servers(2)
    assert [one.name for one in servers] == ["spark-a", "spark-b", "cluster-tp2"]
    assert [one.profile for one in servers] == [SOLO, SOLO, CLUSTER_TP2]
    assert (scenario.strategy, scenario.second_strategy) == ("simple-shuffle", "least-busy")
    assert replace(scenario, strategy="least-busy").second_strategy == "simple-shuffle"


def test_the_recipes_differ_in_the_captured_sizes_alone() -> None:
    """The recipes differ in the captured graph sizes only: the second one has none for 5 and 10."""
    servers = SCENARIOS["recipes"].servers(3)
    assert [one.profile for one in servers] == [GX10_PATCHED, GX10_VANILLA, GX10_PATCHED]
    alike = replace(GX10_PATCHED, name=GX10_VANILLA.name, capture_sizes=GX10_VANILLA.capture_sizes)
    assert alike == GX10_VANILLA
    assert [GX10_VANILLA.padded(batch) for batch in (5, 10)] == [8, 16]
    assert [GX10_PATCHED.padded(batch) for batch in (5, 10)] == [5, 10]


def test_the_contexts_are_long_and_short() -> None:
    """One server has a context of 131,072 tokens, the other of 20,480; the scenario's load fits both."""
    scenario = SCENARIOS["long-context"]
    lengths = [one.profile.max_model_len for one in scenario.servers(2)]
    assert lengths == [131_072, 20_480]
    longest = (1 + scenario.spread) * (scenario.prompt_tokens + scenario.output_tokens)
    assert longest < min(lengths)
