"""Properties of any verdict: independence of names and scale, lost samples, jitter, too little data."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sparktop.analysis.balance.judge import judge
from sparktop.analysis.balance.load_grid import GroupLoad, LoadTrack
from sparktop.model.balance import Balance
from sparktop.model.balance import BalanceWord as Is
from tests.analysis.balance.balance_traces import LIFE_S, trace
from tests.analysis.balance.routed_load import Scene, cut, simulate

pytestmark = pytest.mark.long


@cache
def windows(*, busy: bool = True) -> list[tuple[tuple[LoadTrack, ...], float, float]]:
    """Return windows of recorded and simulated loads as (tracks, end in s, E2E in s).

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
    for policy, count in (("shuffle", 2), ("lag", 2), ("round-robin", 3), ("lag", 3), ("shuffle", 4)):
        for lengths in ("fixed", "log-normal"):
            scene = Scene(policy, 16 * count, count, lengths, 6.0, seconds=90.0, seed=count, stale_s=2.0)
            seen = simulate(scene)
            found.append((seen.tracks, 90.0, seen.e2e_s))
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
        for _ in range(2):
            lossy = verdict([kept(track, dice, 0.95) for track in tracks], at, life).word
            loose = verdict([shaken(track, dice, 0.2) for track in tracks], at + 0.1, life).word
            same += (lossy is word) + (loose is word)
            cases += 2
    assert same >= 0.98 * cases


@pytest.mark.parametrize(
    "tracks",
    [
        [],
        [LoadTrack("a", [], []), LoadTrack("b", [], [])],
        [LoadTrack("a", [59.0], [4.0]), LoadTrack("b", [59.0], [4.0])],
        [LoadTrack(name, [float(t) for t in range(60)], [math.nan] * 60) for name in "ab"],
        [LoadTrack("a", [float(t) for t in range(60)], [9.0] * 60)],
        [
            LoadTrack("a", [float(t) for t in range(60)], [9.0] * 60),
            LoadTrack("b", [float(t) for t in range(60)], [math.nan] * 60),
        ],
    ],
    ids=["nobody", "empty", "one sample", "all missing", "one backend", "one tells nothing"],
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
@settings(max_examples=60, deadline=None)
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


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_nothing_raises(data: st.DataObject) -> None:
    """Any input gives a verdict whose shares are between 0 and 100 %."""
    tracks = []
    for index in range(data.draw(st.integers(0, 4))):
        steps = data.draw(st.lists(st.sampled_from([0.05, 0.25, 1.0, 7.0, 30.0]), max_size=80))
        times = [float(sum(steps[: k + 1])) for k in range(len(steps))]
        number = st.one_of(st.just(math.nan), st.just(0.0), st.floats(0, 500))
        loads = st.lists(number, min_size=len(times), max_size=len(times))
        tracks.append(
            LoadTrack(
                f"s{index}",
                times,
                data.draw(loads),
                data.draw(st.none() | loads),
                data.draw(st.none() | loads),
                data.draw(st.none() | st.integers(1, 64)),
                data.draw(st.sampled_from([1.0, 0.5, 3.0])),
            )
        )
    now = data.draw(st.floats(0, 700))
    found = verdict(
        tracks, now, data.draw(st.sampled_from([None, 0.0, math.nan, math.inf]) | st.floats(0.01, 200))
    )
    shares = [
        found.lost_percent,
        found.free_slot_percent,
        found.samples_percent,
        *found.starved_percent.values(),
    ]
    assert all(-1e-6 <= share <= 100 + 1e-6 for share in shares if share is not None)
    assert found.confidence is None or 0 <= found.confidence <= 1
