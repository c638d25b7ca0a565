"""What a verdict says beside its word: causes, hints, losses, who is away; and when it changes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import cache
from typing import Any

import pytest
from msgspec.structs import replace

from sparktop.analysis.balance.judge import judge
from sparktop.analysis.balance.load_grid import GroupLoad, LoadTrack
from sparktop.analysis.balance.rules import starved_checks
from sparktop.analysis.balance.words import _starved_sentences, gaps_sentence
from sparktop.model.balance import Balance, BalanceWord
from sparktop.model.balance import BalanceWord as Is
from sparktop.panels.group.verdict import _starved_pieces
from sparktop.panels.parts.text import row_text
from sparktop.store.balance_groups import BalanceWatch
from tests.analysis.balance.balance_traces import trace
from tests.analysis.balance.routed_load import START, cut, herd

COMPARE = "compare with simple-shuffle in a sweep: what it gains is not known"


@cache
def waves() -> tuple[tuple[LoadTrack, ...], float]:
    """Return the loads of two servers that get all requests of a lifetime in turn, and their E2E in s."""
    return herd(2, 6.0, hz=2.0, seconds=80.0), 6.0


def swinging(errors: int | None, strategy: str | None = "least-busy") -> Balance:
    tracks, life = waves()
    told = [replace(track, errors=errors) for track in tracks]
    found = judge(GroupLoad("proxy", told, life, strategy), 80.0)
    assert found.word is Is.OSCILLATING
    return found


def test_failures_that_nobody_counts_are_not_none() -> None:
    """If the router's failures are not counted there is no cause: cooldowns look like outdated counts."""
    found = swinging(None)
    assert found.cause is None
    assert (found.hint or "").startswith(COMPARE)
    assert (found.hint or "").endswith(" (unless the router's log has cooldowns)")


def test_herds_are_a_cause_of_their_own() -> None:
    """Counted herds are a cause whatever the lengths, unless failures are uncounted or it is round-robin."""
    found = swinging(0)
    assert (
        found.cause
        == "herding: requests that arrive together go to one backend, as if the router's counts were old"
    )
    assert found.hint == COMPARE
    assert swinging(None).cause is None
    assert swinging(0, strategy="round-robin").cause is None


@pytest.mark.parametrize("strategy", ["consistent_hash", "session-affinity", "prefix-aware", "cache_aware"])
def test_loads_that_follow_keys_are_uneven_not_a_fault_of_the_router(strategy: str) -> None:
    """Tenants that come and go swing the loads of servers by their keys: no herding, no hint to change it."""
    tracks, life = waves()
    found = judge(GroupLoad("proxy", list(tracks), life, strategy, router="proxy"), 80.0)
    assert (found.word, found.also, found.cause, found.hint) == (Is.UNEVEN, (), None, None)
    assert found.reasons[-1] == (
        f"{strategy} follows keys: who asks decides which server is loaded, not the load"
    )
    assert found.lost_words == ""
    by_use = judge(GroupLoad("proxy", list(tracks), life, "least-kv-cache", router="proxy"), 80.0)
    assert by_use.word is Is.OSCILLATING


def test_errors_and_a_swing_are_cooldowns() -> None:
    """A swing of a backend with errors is put down to cooldowns, with the router's setting as the hint."""
    a, b = (cut(track, 0.0, 160.0) for track in trace("cooldown-c64"))
    found = judge(GroupLoad("proxy", [a, replace(b, errors=7)], 19.0, "least-busy"), 160.0)
    assert (
        found.cause
        == "cooldowns: spark-b had errors; a router takes such a server out, and it comes back empty"
    )
    assert found.hint == "mend the errors, or try disable_cooldowns: true in the router's settings"


def lasting(name: str, running: float, tps: float | None = None) -> LoadTrack:
    """Return the load of a backend that stays the same for 80 s."""
    times = [index / 2 for index in range(160)]
    rates = None if tps is None else [tps] * 160
    return LoadTrack(name, times, [running] * 160, [0.0] * 160, rates)


def judged_lasting(*tracks: LoadTrack, prefills: bool = False) -> Balance:
    """Judge such backends at the end."""
    return judge(GroupLoad("proxy", tracks, 6.0, prefills=prefills), 79.5)


def test_one_that_holds_requests_and_makes_nothing_is_stuck() -> None:
    """A backend that holds requests but generates no token while the other one does is named as stuck."""
    found = judged_lasting(lasting("rank0", 20.0, tps=300.0), lasting("rank1", 20.0, tps=0.0))
    assert found.cause == "rank1 holds requests and makes no token"
    assert found.word is Is.BALANCED
    assert judged_lasting(lasting("rank0", 20.0, tps=0.0), lasting("rank1", 20.0, tps=0.0)).cause is None


def test_a_group_whose_loaded_servers_all_stand_still_is_not_balanced() -> None:
    """If no loaded server generates a token, the verdict on an even split is "unknown", with the reason."""
    tracks = [lasting(name, 20.0, tps=0.0) for name in ("a", "b")]
    found = judged_lasting(*tracks)
    assert found.word is Is.UNKNOWN
    assert found.reasons[0] == "a and b hold requests, and no token came in 60 s"
    found = judged_lasting(tracks[0], replace(tracks[1], generation_tps=None))
    assert found.reasons[0] == "a holds requests, and no token came in 60 s"
    assert judged_lasting(*tracks, prefills=True).word is Is.BALANCED
    assert judged_lasting(lasting("a", 20.0), lasting("b", 20.0)).word is Is.BALANCED


# A loss of throughput is shown only if step times are certain enough; limits for late polls and failures.

CONVOY_BASE_S, CONVOY_SLOPE_S, CONVOY_HZ = 0.035, 0.0005, 4


def makes(batch: float) -> float:
    """Return the tokens per second of a batch."""
    return batch / (CONVOY_BASE_S + CONVOY_SLOPE_S * batch)


def convoy(name: str, pattern: Sequence[tuple[float, float]]) -> LoadTrack:
    """Return the track of a backend that repeats (batch, seconds); rates are over the last second."""
    turn = [batch for batch, lasts in pattern for _ in range(round(lasts * CONVOY_HZ))]
    loads = [turn[index % len(turn)] for index in range(120 * CONVOY_HZ)]
    rates = [
        sum(map(makes, loads[max(0, index - CONVOY_HZ + 1) : index + 1])) / CONVOY_HZ
        for index in range(len(loads))
    ]
    return LoadTrack(
        name, [index / CONVOY_HZ for index in range(len(loads))], loads, [0.0] * len(loads), rates
    )


CONVOYS = ((46.0, 3.0), (0.0, 1.5), (14.0, 1.5), (2.0, 1.5))
TURNED = (*CONVOYS[1:], CONVOYS[0])


def test_a_loss_is_shown_where_the_steps_are_known() -> None:
    """With known step times, the loss of two convoys follows from these."""
    tracks = [convoy("a", CONVOYS), convoy("b", TURNED)]
    found = judge(GroupLoad("proxy", tracks, 3.0), tracks[0].times_s[-1])
    window = round(found.window_s * CONVOY_HZ)
    columns = [track.running[-window:] for track in tracks]
    made = sum(makes(load) for column in columns for load in column)
    best = sum(2 * makes(sum(row) / 2) for row in zip(*columns, strict=True))
    assert found.lost_percent == pytest.approx(100 * (1 - made / best), abs=1.5)


# Step times of a group: a line for each backend if speeds differ, and then no loss.


# Correct routing in unusual groups is not called bad: drained, late or full backends, late polls.


def drained() -> list[LoadTrack]:
    """Return two even backends, of which the second gets no request from 60 s on."""
    times = [step / 2 for step in range(230)]
    loads = [[16.0] * 120 + [load] * 110 for load in (32.0, 0.0)]
    return [
        LoadTrack(
            f"spark-{name}",
            times,
            load,
            [0.0] * len(times),
            arrived=[4.0 * at if name == "a" else 4.0 * min(at, 60.0) for at in times],
        )
        for name, load in zip("ab", loads, strict=True)
    ]


def test_a_backend_that_gets_nothing_is_said_to_be_away() -> None:
    """A drained backend is reported as away, not as starved."""
    found = judge(GroupLoad("proxy", drained(), 8.0), 114.0)
    assert found.word is not Is.STARVED
    assert found.away_s["spark-b"] == pytest.approx(54.0, abs=2.0)
    assert "apart from that, without any new request: spark-b 5" in starved_checks(found)[0].rule
    assert any("spark-b got no request for 54 s: drained, cooling" in reason for reason in found.reasons)
    starving = replace(found, starved_percent={"spark-b": 30.0}, word=Is.STARVED, word_now=Is.STARVED)
    assert _starved_sentences(starving) == [
        "spark-b starves: nearly empty 30 % of the time, and 54 s without any request"
    ]
    assert (
        row_text(_starved_pieces(starving)[0])
        == "spark-b nearly empty 30 % of the time, 54 s without requests"
    )


# When a verdict is announced and withdrawn, and how the change is described.


def announced(words: list[BalanceWord]) -> list[BalanceWord]:
    """Feed one verdict every 5 s; return the announced verdict after each."""
    watch = BalanceWatch()
    said = []
    for index, word in enumerate(words):
        now = START + timedelta(seconds=5 * index)
        said.append(watch.update(Balance("proxy", ("a", "b"), word_now=word), 5.0 * index, now)[0].word)
    return said


def test_two_evaluations_announce_and_three_withdraw() -> None:
    """Two equal verdicts in a row are announced; a bad one is withdrawn after three others."""
    words = [Is.BALANCED, Is.BALANCED, Is.OSCILLATING, Is.BALANCED, Is.OSCILLATING, Is.OSCILLATING]
    assert announced(words)[-3:] == [Is.BALANCED, Is.BALANCED, Is.OSCILLATING]
    words += [Is.BALANCED, Is.BALANCED, Is.BALANCED]
    assert announced(words)[-3:] == [Is.OSCILLATING, Is.OSCILLATING, Is.BALANCED]


# A group is judged without a backend whose samples are too few, and says so by name.

NOW_S = 120.0


def polled_every(name: str, every_s: float = 1.0, missing: int = 0) -> LoadTrack:
    """Return two minutes of a backend with 10 requests; every `missing`-th sample is left out."""
    count = int(NOW_S / every_s)
    times = [number * every_s for number in range(count) if not missing or number % missing]
    return LoadTrack(name, times, [10.0] * len(times), generation_tps=[300.0] * len(times))


def judged(tracks: Sequence[LoadTrack]) -> tuple[Is, str, tuple[str, ...]]:
    """Return (verdict, reasons, backends judged)."""
    found = judge(GroupLoad("proxy", tracks, 5.0), NOW_S)
    return found.word, "; ".join(found.reasons), found.backends


@pytest.mark.parametrize(
    ("count", "left_out", "why"),
    [
        (3, {"missing": 8}, "has only 8"),
        (36, {"missing": 8}, "has only 8"),
        (5, {"every_s": 2.0}, "is polled every 2 s, the others every 1 s; judged without it"),
        (5, {"every_s": 10.0}, "is polled every 10 s, the others every 1 s; judged without it"),
    ],
)
def test_a_member_without_enough_samples_is_left_out_by_name(
    count: int, left_out: dict[str, Any], why: str
) -> None:
    """One that has 88 % of its samples, or whose page takes seconds, does not silence the others."""
    others = [polled_every(f"spark-{number}") for number in range(count - 1)]
    word, said, backends = judged([*others, polled_every("late", **left_out)])
    assert word is Is.BALANCED
    assert f"late {why}" in said
    assert said.endswith("; judged without it")
    assert "late" not in backends
    assert len(backends) == count - 1


def test_of_two_none_is_left_out() -> None:
    """A balance is between two: with one of them missing samples there is no verdict, and the reason."""
    word, said, _ = judged([polled_every("spark-a"), polled_every("late", missing=8)])
    assert word is Is.UNKNOWN
    assert said == "polls of late are missing: 88 % came, 90 % are needed"
    shares = [gaps_sentence("late", share).split(": ")[1] for share in (0.828, 0.898)]
    assert shares == ["83 % came, 90 % are needed", "89 % came, 90 % are needed"], "as the question rounds"
