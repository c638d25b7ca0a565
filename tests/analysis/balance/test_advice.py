"""Causes and hints are given only with evidence, in the expected words."""

from __future__ import annotations

from functools import cache

import pytest
from msgspec.structs import replace

from sparktop.analysis.balance.judge import judge
from sparktop.analysis.balance.load_grid import GroupLoad, LoadTrack
from sparktop.model.balance import Balance
from sparktop.model.balance import BalanceWord as Is
from tests.analysis.balance.balance_traces import trace
from tests.analysis.balance.routed_load import Scene, cut, simulate


@cache
def waves(servers: int = 2) -> tuple[tuple[LoadTrack, ...], float]:
    """Simulate least-busy routing of equally long requests on outdated counts; return (tracks, E2E in s)."""
    seen = simulate(Scene("lag", 16 * servers, servers, "fixed", 6.0, 2.0, 80.0, 1, 2.0))
    return seen.tracks, seen.e2e_s


def swinging(
    errors: int | None,
    variation: float | None,
    servers: int = 2,
    strategy: str | None = "least-busy",
    *,
    counted: bool = True,
) -> Balance:
    tracks, life = waves(servers)
    told = [replace(track, errors=errors, arrived=track.arrived if counted else None) for track in tracks]
    found = judge(GroupLoad("proxy", told, life, variation, strategy), 80.0)
    assert found.word is Is.OSCILLATING
    return found


@pytest.mark.parametrize("servers", [2, 3])
def test_a_swing_has_a_hint_also_without_a_known_cause(servers: int) -> None:
    """Without counts of requests there is no cause; the strategies that read no counts still help."""
    found = swinging(0, 0.02, servers, counted=False)
    assert (found.cause, found.hint) == (None, "try simple-shuffle or round-robin")


def test_failures_that_nobody_counts_are_not_none() -> None:
    """If the router's failures are not counted there is no cause: cooldowns look like outdated counts."""
    found = swinging(None, 0.02)
    assert found.cause is None
    assert (found.hint or "").startswith("try ")
    assert (found.hint or "").endswith("; check the router's log for cooldowns first")


@pytest.mark.parametrize("variation", [None, 0.5])
def test_herds_are_a_cause_of_their_own(variation: float | None) -> None:
    """Counted herds are a cause whatever the lengths, unless failures are uncounted or it is round-robin."""
    found = swinging(0, variation)
    assert (
        found.cause
        == "herding: requests that arrive together go to one backend, as a router on old counts sends them"
    )
    assert found.hint == "try simple-shuffle or round-robin"
    assert swinging(None, variation).cause is None
    assert swinging(0, variation, strategy="round-robin").cause is None


@pytest.mark.parametrize(
    ("strategy", "hint"), [(None, True), ("simple-shuffle", False), ("round-robin", False)]
)
def test_a_router_that_reads_no_counts_is_not_told_to_read_none(strategy: str | None, *, hint: bool) -> None:
    """There is no hint to use simple-shuffle or round-robin if the router is known to use one of them."""
    assert (swinging(0, 0.02, strategy=strategy).hint is not None) is hint


def test_errors_and_a_swing_are_cooldowns() -> None:
    """A swing of a backend with errors is put down to cooldowns, with the router's setting as the hint."""
    a, b = (cut(track, 0.0, 160.0) for track in trace("cooldown-c64"))
    found = judge(GroupLoad("proxy", [a, replace(b, errors=7)], 19.0, 0.0, "least-busy"), 160.0)
    assert (
        found.cause
        == "cooldowns: spark-b had errors; a router takes such a server out, and it comes back empty"
    )
    assert found.hint == "mend the errors, or try disable_cooldowns: true in the router's settings"


def skewed(seconds: int, high: float = 23.0, low: float = 9.0) -> list[LoadTrack]:
    times = [index / 2 for index in range(2 * seconds)]
    return [
        LoadTrack("a", times, [high + index % 2 for index in range(len(times))], [0.0] * len(times)),
        LoadTrack("b", times, [low] * len(times), [0.0] * len(times)),
    ]


def test_a_flat_skew_of_minutes_under_least_busy_is_counter_drift() -> None:
    """A constant skew over minutes under least-busy is "uneven", caused by wrong counters of the router."""
    found = judge(GroupLoad("proxy", skewed(150), 18.0, strategy="least-busy"), 150.0)
    assert found.word is Is.UNEVEN
    assert (
        found.reasons[0]
        == "a always has most: 45 % more than its share over 2.4 min (mean load a 24 · b 9.0)"
    )
    assert found.cause == "counter drift: the router believes in requests that are long gone"
    assert found.hint == "restart the proxy, or try simple-shuffle"


def test_one_that_holds_requests_and_makes_nothing_is_stuck() -> None:
    """A backend that holds requests but generates no token while the other one does is named as stuck."""
    times = [index / 2 for index in range(160)]
    tracks = [
        LoadTrack("rank0", times, [20.0] * 160, [0.0] * 160, [300.0] * 160),
        LoadTrack("rank1", times, [20.0] * 160, [0.0] * 160, [0.0] * 160),
    ]
    found = judge(GroupLoad("lanes", tracks, 6.0), 79.5)
    assert found.cause == "rank1 holds requests and makes no token"
    assert found.word is Is.BALANCED
    tracks[0] = replace(tracks[0], generation_tps=[0.0] * 160)
    assert judge(GroupLoad("lanes", tracks, 6.0), 79.5).cause is None


def test_a_group_whose_loaded_servers_all_stand_still_is_not_balanced() -> None:
    """If no loaded server generates a token, the verdict on an even split is "unknown", with the reason."""
    times = [index / 2 for index in range(160)]
    zeros = [0.0] * 160
    tracks = [LoadTrack(name, times, [20.0] * 160, zeros, zeros) for name in ("a", "b")]
    found = judge(GroupLoad("proxy", tracks, 6.0), 79.5)
    assert found.word is Is.UNKNOWN
    assert found.reasons[0] == "no token in 60 s, but requests: a and b may be stuck"
    prefills = judge(GroupLoad("proxy", tracks, 6.0, prefills=True), 79.5)
    assert prefills.word is Is.BALANCED
    silent = [replace(track, generation_tps=None) for track in tracks]
    assert judge(GroupLoad("proxy", silent, 6.0), 79.5).word is Is.BALANCED


def test_a_free_slot_beside_a_queue_is_said() -> None:
    """If requests wait at one backend while another has a free slot, this is a reason of its own."""
    times = [index / 2 for index in range(160)]
    tracks = [
        LoadTrack("a", times, [12.0] * 160, [6.0] * 160, slots=12),
        LoadTrack("b", times, [10.0] * 160, [0.0] * 160, slots=12),
    ]
    found = judge(GroupLoad("proxy", tracks, 6.0), 79.5)
    assert found.free_slot_percent == 100.0
    assert "100 % of the time requests wait at one backend while another has a free slot" in found.reasons
