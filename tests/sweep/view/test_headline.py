"""The answer of a sweep in one sentence: the best level or target, how certain, and the limit of TTFT."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.model.sweep import Rank
from sparktop.sweep.formats.written import sweep_report
from sparktop.sweep.result.results import (
    EachRequest,
    Latency,
    LevelResult,
    Rate,
    Requests,
    SweepResult,
    Validity,
)
from sparktop.sweep.view.result import result_view
from tests.sweep.made_results import made_level, made_sweep


def level(concurrency: int, *rates: float, ttft_ms: float = 100.0, requests: int = 120) -> LevelResult:
    """Return a level whose runs decode at `rates`; requests waited from 0.9 to 1.1 times `ttft_ms`."""
    waits = [ttft_ms * (0.9 + 0.2 * (index % 10) / 9) for index in range(requests)]
    runs = [index * 3 // requests for index in range(requests)]
    return made_level(concurrency).model_copy(
        update={
            "decode_tps": Rate.of_runs(rates),
            "ttft_ms": Latency.of_values(waits),
            "requests": Requests(ok=requests),
            "validity": (),
            "each": EachRequest(run=tuple(runs), ttft_ms=tuple(waits)),
        }
    )


def answered(levels: Sequence[LevelResult], **changes: object) -> str:
    """Return the headline of a sweep of one target with the given levels."""
    plan = made_sweep(("a", levels)).plan.model_copy(update=changes)
    return result_view(made_sweep(("a", levels)).model_copy(update={"plan": plan})).headline or ""


def test_the_best_level_with_its_wait() -> None:
    """The level with the most tokens, what its requests wait, and which level is not clearly below it."""
    levels = [
        level(1, 45, 46, 47),
        level(16, 300, 301, 302, ttft_ms=1500),
        level(32, 409, 410, 411, ttft_ms=3000),
        level(64, 408, 411, 414, ttft_ms=9000),
    ]
    best = "best: c = 64, 411.0 tok/s; mean TTFT 9,000 ms"
    assert answered(levels) == f"{best}; no clear difference from c = 32"


def test_what_rises_is_said_to_rise() -> None:
    """The best is the last: the limit of a sweep that goes on is named, else the next level is suggested."""
    levels = [level(1, 45, 46, 47), level(4, 150, 151, 152)]
    best = "best: c = 4, 151.0 tok/s; mean TTFT 100 ms; still rising: try c = 8"
    assert answered(levels) == best
    assert answered(levels, climb_to=4).endswith("; still rising at the limit of 4")
    result = made_sweep(("a", levels))
    full = result.with_target(result.targets[0].model_copy(update={"slots": 4}))
    assert (result_view(full).headline or "").endswith("; all 4 slots in use")


def test_chance_is_named() -> None:
    """A lower level that may be as good makes the best one uncertain; single runs always are."""
    unsure = [level(4, 80, 100, 120), level(8, 90, 110, 130)]
    assert answered(unsure).startswith("best: c = 8, 110.0 tok/s")
    assert answered(unsure).endswith("; no clear difference from c = 4")
    single = [level(4, 100), level(8, 110)]
    assert "; single runs, not tested; still rising" in answered(single)


def throttled(made: LevelResult) -> LevelResult:
    """Return the level with a warning."""
    return made.model_copy(update={"validity": (Validity(code="throttled", message="a was throttled"),)})


@pytest.mark.parametrize("warned", [(), (8,), (4, 16)])
def test_the_best_is_the_best_whatever_warnings_it_has(warned: Sequence[int]) -> None:
    """263, 344 and 309 tok/s: 344 is the best in sentence and table, and a warning stands beside it."""
    rates = {4: (262, 263, 264), 8: (343, 344, 345), 16: (308, 309, 310)}
    levels = [throttled(level(at, *runs)) if at in warned else level(at, *runs) for at, runs in rates.items()]
    found = result_view(made_sweep(("a", levels)))
    assert [row.ranks.get("decode_tps") for row in found.rows] == [None, Rank.BEST, None]
    words = found.headline or ""
    assert words.startswith("best: c = 8, 344.0 tok/s")
    assert ("tok/s (warning: throttled); mean TTFT 100 ms" in words) is (8 in warned)
    assert "c = 16 gives −10 %" in words


def test_nothing_measured_has_no_headline() -> None:
    """No level, no answer."""
    assert result_view(made_sweep(("a", []))).headline is None


def test_several_lengths_have_an_answer_each() -> None:
    """By length where levels differ too; of one level the shortest and the longest prompt."""
    short, long = level(1, 45, 46, 47), level(1, 20, 21, 22)
    both = [short.model_copy(update={"pp": 5000}), long.model_copy(update={"pp": 39_000})]
    assert (
        answered(both) == "decode at c = 1: 46.0 tok/s with 5,000 tokens in, 21.0 tok/s with 39,000 tokens in"
    )
    more = [*both, level(4, 150, 151, 152).model_copy(update={"pp": 5000})]
    assert answered(more).startswith("5,000 tokens in: best: c = 4, 151.0 tok/s")
    assert "; 39,000 tokens in: c = 1, 21.0 tok/s" in answered(more)


def targets(*rates: tuple[float, float, float], at: Sequence[int] = (1, 4, 16)) -> SweepResult:
    """Return a sweep of "a" with 100, 101 and 102 tokens/s at each level, and of "b" with the given rates."""
    one = [level(concurrency, 100, 101, 102) for concurrency in at]
    other = [level(concurrency, *rate) for concurrency, rate in zip(at, rates, strict=True)]
    return made_sweep(("a", one), ("b", other))


def test_the_winner_of_several_targets() -> None:
    """From where up it wins and by how much, of the main token rate first."""
    result = targets((100, 101, 102), (124, 125, 126), (128, 129, 130))
    assert result_view(result).headline == "b wins from c = 4 up: +24 to +28 % decode against a"
    assert result_view(targets((124, 125, 126), (124, 125, 126), (124, 125, 126))).headline == (
        "b wins at every level: +24 % decode against a"
    )


def test_a_win_that_may_only_seem_to_be_one_says_so() -> None:
    """A doubt of the winner's level stands after the win; where others have none, with the level."""
    for code, word in (("hidden_tokens", "hidden tokens"), ("throttled", "throttled")):
        doubt = (Validity(code=code, message="x"),)
        fast = [level(at, 124, 125, 126).model_copy(update={"validity": doubt}) for at in (4, 8)]
        slow = [level(at, 100, 101, 102) for at in (4, 8)]
        found = result_view(made_sweep(("a", slow), ("b", fast))).headline
        assert found == f"b wins at every level: +24 % decode against a (warning: {word})"
        half = [fast[0], level(8, 124, 125, 126)]
        found = result_view(made_sweep(("a", slow), ("b", half))).headline
        assert found == f"b wins at every level: +24 % decode against a (warning at c = 4: {word})"


def test_no_winner_names_the_largest_lead() -> None:
    """A lead that no test shows is there, with whom it refers to, and as not clear."""
    result = targets((80, 101, 140), (100, 101, 102), (100, 101, 102))
    assert result_view(result).headline == (
        "no clear difference between the targets in decode, TTFT or prefill (at most b +6 % against a at c1)"
    )


def test_a_target_that_beats_some_but_not_all_is_no_winner() -> None:
    """A target that beats one of two others only is not a winner; its lead is against the other one."""
    made = [level(4, 99, 100, 101), level(4, 60, 88, 130), level(4, 79, 80, 81)]
    result = made_sweep(*((name, [decoding_only(one)]) for name, one in zip("abc", made, strict=True)))
    assert result_view(result).headline == "no clear winner in decode (a +8 % against b)"
    assert "**No clear winner in decode (`a` +8 % against `b`).**" in sweep_report(result, "post")


def decoding_only(made: LevelResult) -> LevelResult:
    """Return the level without a prefill rate and without TTFT."""
    return made.model_copy(update={"prefill_tps": None, "ttft_ms": None})


_RATES = st.lists(st.sampled_from((0.5, 50.0, 51.0, 90.0, 100.0, 300.0)), min_size=1, max_size=3)
_LEVEL = st.tuples(st.sampled_from((1, 4)), _RATES)
_TARGET = st.lists(_LEVEL, min_size=1, max_size=2, unique_by=lambda one: one[0])


@settings(max_examples=6, deadline=None)
@given(st.lists(_TARGET, min_size=2, max_size=4))
def test_any_targets_have_a_headline(found: Sequence[Sequence[tuple[int, list[float]]]]) -> None:
    """Whatever was measured, each format has an answer."""
    made = [
        (f"t{number}", [decoding_only(level(at, *rates)) for at, rates in levels])
        for number, levels in enumerate(found)
    ]
    result = made_sweep(*made)
    assert result_view(result).headline
    assert sweep_report(result, "post").startswith("## ")
    assert sweep_report(result, "md")
