"""Verdicts on recorded loads, and properties that hold for all of them."""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Sequence
from functools import cache
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sparktop.analysis.balance.judge import judge
from sparktop.analysis.balance.load_grid import GroupLoad, LoadTrack
from sparktop.model.balance import Balance
from sparktop.model.balance import BalanceWord as Is
from tests.analysis.balance.balance_traces import LIFE_S, trace
from tests.analysis.balance.routed_load import Seen, cut, follow

pytestmark = pytest.mark.long

SEE_SAWS = ("leastbusy-c16", "leastbusy-c16-b", "leastbusy-c16-busy", "leastbusy-c16-busy-b", "cooldown-c64")
SEEN: dict[tuple[str, bool], list[Seen]] = {}


def seen(name: str, *, life_known: bool) -> list[Seen]:
    """Follow a trace from its start, once per trace."""
    key = (name, life_known)
    if key not in SEEN:
        SEEN[key] = list(follow(trace(name), LIFE_S[name] if life_known else None))
    return SEEN[key]


@pytest.mark.parametrize(
    ("name", "low_s", "high_s", "announced_s"),
    [
        ("leastbusy-c16", 5.0, 6.5, 50.0),
        ("leastbusy-c16-b", 4.0, 5.0, 50.0),
        ("leastbusy-c16-busy", 4.0, 8.0, 60.0),
        ("leastbusy-c16-busy-b", 4.0, 8.0, 80.0),
        ("cooldown-c64", 37.0, 41.0, 70.0),
    ],
)
def test_a_see_saw_is_named_with_its_period(
    name: str, low_s: float, high_s: float, announced_s: float
) -> None:
    """Each recorded swing is announced in time, stays announced, and has the period seen on the graph."""
    steps = seen(name, life_known=True)
    first = next(step.at_s for step in steps if step.balance.word is Is.OSCILLATING)
    assert first <= announced_s
    after = [step.balance for step in steps if step.at_s >= first]
    assert {balance.word for balance in after} == {Is.OSCILLATING}
    assert low_s <= (after[-1].period_s or 0.0) <= high_s


def sampled(track: LoadTrack, every_s: float, phase: float) -> LoadTrack:
    """Return a track as polls see it that begin at the share `phase` of their interval `every_s`."""
    begin, end = track.times_s[0], track.times_s[-1]
    times = [begin + (phase + number) * every_s for number in range(int((end - begin) / every_s - phase) + 1)]
    rows = [bisect_right(track.times_s, at) - 1 for at in times]

    def chosen(values: Sequence[float] | None) -> list[float]:
        return [(values or [])[row] for row in rows]

    return LoadTrack(
        track.name, times, chosen(track.running), chosen(track.waiting), chosen(track.generation_tps)
    )


@pytest.mark.parametrize("name", [name for name in LIFE_S if "shuffle" in name or name in SEE_SAWS])
def test_one_poll_a_second_is_enough_whenever_it_falls(name: str) -> None:
    """At 1 Hz a see-saw is named within 60 s in the median, in each of 8 phases; shuffling never is."""
    first, phases = [], 8 if name in SEE_SAWS else 2
    for phase in range(phases):
        tracks = [sampled(track, 1.0, phase / phases) for track in trace(name)]
        steps = follow(tracks, LIFE_S[name])
        first.append(next((step.at_s for step in steps if step.balance.word is Is.OSCILLATING), None))
    after = [at for at in first if at is not None]
    assert len(after) == (phases if name in SEE_SAWS else 0)
    assert not after or median(after) <= 60


@pytest.mark.parametrize(
    ("name", "life_known"),
    [
        *(
            (name, False)
            for name in LIFE_S
            if name in {"shuffle-c16-b", "shuffle-c16-busy", "shuffle-c16-busy-c"}
        ),
        *((name, True) for name in ("leastbusy-c2", "leastbusy-warm-c64", "shuffle-c64")),
    ],
)
def test_no_other_trace_is_ever_called_bad(name: str, *, life_known: bool) -> None:
    """Random routing, least-busy without outdated counts, and a low load never get a bad verdict."""
    steps = seen(name, life_known=life_known)
    quiet = Is.IDLE if name == "leastbusy-c2" else Is.BALANCED
    assert {step.balance.word_now for step in steps} <= {Is.UNKNOWN, quiet}
    if "c64" in name:
        assert steps[-1].balance.word is Is.BALANCED


def test_random_routing_is_told_from_even_routing() -> None:
    """Both are balanced, but the reason for random routing is "within chance"."""
    shuffled = seen("shuffle-c64", life_known=True)[-1].balance
    even = seen("leastbusy-warm-c64", life_known=True)[-1].balance
    assert shuffled.reasons[0].startswith("within chance (up to 3 ×): on average spark-a ")
    assert even.reasons[0] == "even: on average spark-a 32 · spark-b 32 requests"
    assert 0.3 < (shuffled.dispersion_z or 0.0) < 3.0
    assert (even.dispersion_z or 1.0) < 0.05


def test_the_reasons_of_the_cooldowns_can_be_checked_on_the_graph() -> None:
    """The reasons state lead changes, period, starvation and loss (30.4 % were measured)."""
    balance = seen("cooldown-c64", life_known=True)[-1].balance
    assert balance.also == (Is.STARVED,)
    assert balance.reasons[:4] == (
        "spark-a and spark-b swap the lead (8 changes in 2.5 min; period 39 s ≈ 2 × the median E2E of 19 s)",
        "spark-a starves: nearly empty 35 % of the time",
        "spark-b starves: nearly empty 31 % of the time",
        "about 31 % of throughput lost to uneven loads; random routing would lose about 1 %",
    )


# Properties of any verdict: independence of names and scale, lost samples, jitter, too little data.


@cache
def windows(*, busy: bool = True) -> list[tuple[tuple[LoadTrack, ...], float, float]]:
    """Return windows of recorded loads as (tracks, end in s, E2E in s).

    Without `busy`, leave out recordings that already lack nearly a tenth of their samples, which is as much
    as may be missing. Chance is so wide in these that two or three times the counts would be herding.
    """
    found: list[tuple[tuple[LoadTrack, ...], float, float]] = []
    for name, life in LIFE_S.items():
        if "-busy" in name and not busy:
            continue
        tracks = trace(name)
        end = tracks[0].times_s[-1]
        found += [(tuple(cut(track, at - 160, at) for track in tracks), at, life) for at in (0.8 * end, end)]
    return found


def verdict(tracks: Sequence[LoadTrack], at: float, life: float | None) -> Balance:
    return judge(GroupLoad("proxy", tracks, life), at)


def kept(track: LoadTrack, dice: random.Random, share: float) -> LoadTrack:
    """Keep each sample with the probability `share`."""
    keep = [index for index in range(len(track.times_s)) if dice.random() < share]
    return replace(
        track,
        times_s=[track.times_s[i] for i in keep],
        running=[track.running[i] for i in keep],
        waiting=[(track.waiting or [])[i] for i in keep],
        generation_tps=[(track.generation_tps or [])[i] for i in keep],
        arrived=None if track.arrived is None else [track.arrived[i] for i in keep],
    )


def shaken(track: LoadTrack, dice: random.Random, share: float) -> LoadTrack:
    """Move each time stamp by a random part, up to `share`, of the sampling interval."""
    step = track.times_s[1] - track.times_s[0]
    return replace(track, times_s=sorted(time + dice.uniform(-share, share) * step for time in track.times_s))


def test_names_and_their_order_never_matter() -> None:
    """The order of backends changes neither the verdict nor its figures, which keep their backends' names."""
    dice = random.Random(5)  # noqa: S311 - repeatable chance
    for tracks, at, life in windows():
        straight = verdict(tracks, at, life)
        turned = list(tracks)
        dice.shuffle(turned)
        other = verdict(turned, at, life)
        assert (other.word, other.also, other.lead_changes) == (
            straight.word,
            straight.also,
            straight.lead_changes,
        )
        assert other.period_s == pytest.approx(straight.period_s)
        assert other.dispersion_z == pytest.approx(straight.dispersion_z)
        assert other.starved_percent == pytest.approx(straight.starved_percent)
        assert other.skew_backend == straight.skew_backend or straight.skew == pytest.approx(0.0)


def test_lost_samples_and_jitter_hardly_ever_change_the_word() -> None:
    """With 5 % of the samples lost, or 20 % jitter, the verdict stays the same in 98 % of cases."""
    dice = random.Random(7)  # noqa: S311 - repeatable chance
    same = cases = 0
    for tracks, at, life in windows(busy=False):
        word = verdict(tracks, at, life).word
        lossy = verdict([kept(track, dice, 0.95) for track in tracks], at, life).word
        loose = verdict([shaken(track, dice, 0.2) for track in tracks], at + 0.1, life).word
        same += (lossy is word) + (loose is word)
        cases += 2
    assert same >= 0.98 * cases


@pytest.mark.parametrize(
    "tracks",
    [
        [],
        [LoadTrack(name, [float(t) for t in range(60)], [math.nan] * 60) for name in "ab"],
        [LoadTrack("a", [float(t) for t in range(60)], [9.0] * 60)],
    ],
    ids=["nobody", "all missing", "one backend"],
)
def test_too_little_is_unknown_with_a_reason(tracks: list[LoadTrack]) -> None:
    """No backend, a single one, one sample or missing values are "unknown", with a reason."""
    found = verdict(tracks, 60.0, 5.0)
    assert found.word is Is.UNKNOWN
    assert found.reasons
    assert found.confidence is None


@given(
    moment=st.integers(5, 115),
    load=st.integers(8, 60),
    dies=st.booleans(),
    backends=st.integers(3, 5),
    end=st.integers(1, 24),
)
@settings(max_examples=25, deadline=None)
def test_who_comes_or_goes_makes_no_false_word(
    moment: int, load: int, *, dies: bool, backends: int, end: int
) -> None:
    """A backend that starts or stops answering beside an even split of the rest causes no bad verdict."""
    now = 5.0 * end
    times = [index / 2 for index in range(240)]
    whole = float(load * backends * (backends - 1))
    tracks = []
    for index in range(backends):
        here = [time for time in times if index or (time < moment if dies else time >= moment)]
        counts = [whole / (backends if (time < moment) == dies else backends - 1) for time in here]
        tracks.append(cut(LoadTrack(f"s{index}", here, counts, [0.0] * len(here)), 0.0, now))
    found = verdict(tracks, now, 4.0)
    assert found.word in {Is.UNKNOWN, Is.BALANCED}
    if found.word is Is.BALANCED:
        assert "s0" not in found.backends or found.window_s <= 60.5


def steady(*loads: Sequence[float], lives_s: float = 4.0) -> list[LoadTrack]:
    """Return two minutes of loads, each the turns of one backend; what holds none got no request."""
    times = [index / 2 for index in range(241)]
    return [
        LoadTrack(
            f"s{number}",
            times,
            [turns[int(time) % len(turns)] for time in times],
            [0.0] * len(times),
            arrived=[max(turns) * time / lives_s for time in times],
        )
        for number, turns in enumerate(loads)
    ]


@pytest.mark.parametrize(
    ("loads", "word", "reason"),
    [
        ([[200], [0]], Is.UNEVEN, "s1 got no request for 60 s"),
        ([[10]] * 7 + [[0]], Is.UNEVEN, "s7 got no request for 60 s"),
        ([[12, 12, 11], [14, 14, 11], [0]], Is.UNEVEN, "s2 got no request for 60 s"),
        (
            [[20 + 6 * math.sin(turn * math.pi / 6 + part) for turn in range(12)] for part in (0, math.pi)]
            + [[0]],
            Is.UNEVEN,
            "s2 got no request for 60 s",
        ),
        ([[150], [60]], Is.UNKNOWN, "watched for 120 s: a verdict takes at least 300 s"),
        ([[75], [65]], Is.BALANCED, ""),
        (
            [[18] * 30 + [28] * 30, [14] * 30 + [4] * 30],
            Is.UNKNOWN,
            "s0 has 44 % more than its share over 60 s, and not steadily; the loads differ 9.2 ×",
        ),
    ],
)
def test_a_split_that_is_far_from_even_is_not_balanced(
    loads: Sequence[Sequence[float]], word: Is, reason: str
) -> None:
    """Nor where the loss is small or unknown, and many requests may hide it: then it is unknown."""
    found = verdict(steady(*loads), 120.0, 4.0)
    assert found.word is word
    assert reason in "; ".join(found.reasons)
