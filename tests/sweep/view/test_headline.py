"""The answer of a sweep in one sentence: the best level or target, how certain, and the limit of TTFT."""

from __future__ import annotations

import json
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.model.sweep_view import Rank
from sparktop.sweep.formats import json_file, markdown
from sparktop.sweep.formats.written import sweep_report
from sparktop.sweep.result.figures import Latency, Rate
from sparktop.sweep.result.results import (
    EachRequest,
    Holds,
    LevelResult,
    Requests,
    SloResult,
    SweepResult,
    Validity,
)
from sparktop.sweep.view.result import findings
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
    return findings(made_sweep(("a", levels)).model_copy(update={"plan": plan})).headline or ""


def test_the_best_level_and_where_first_tokens_are_in_time() -> None:
    """32 is the fewest requests with the most tokens; up to 16 the first of them come within 2 s."""
    levels = [
        level(1, 45, 46, 47),
        level(16, 300, 301, 302, ttft_ms=1500),
        level(32, 409, 410, 411, ttft_ms=3000),
        level(64, 408, 410, 412, ttft_ms=9000),
    ]
    best = "best: c = 32, 410 tok/s with 32 requests at once, c = 64 gives no more; "
    assert answered(levels) == f"{best}TTFT p90 stays under 2 s up to c = 16"


def test_what_rises_is_said_to_rise() -> None:
    """The best is the last: the limit of a sweep that goes on is named, else the next level is suggested."""
    levels = [level(1, 45, 46, 47), level(4, 150, 151, 152)]
    best = "best: c = 4, 151 tok/s with 4 requests at once, still rising: try c = 8; "
    assert answered(levels).startswith(best)
    assert ", still rising at the limit of 4; " in answered(levels, climb_to=4)
    result = made_sweep(("a", levels))
    full = result.with_target(result.targets[0].model_copy(update={"slots": 4}))
    assert ", all 4 slots in use; " in (findings(full).headline or "")


def test_chance_is_named() -> None:
    """A lower level that may be as good makes the best one uncertain; single runs always are."""
    unsure = [level(4, 80, 100, 120), level(8, 90, 110, 130)]
    assert answered(unsure).startswith("best: c = 4 or 8, up to 110 tok/s (no difference shown)")
    single = [level(4, 100), level(8, 110)]
    assert "c = 8, 110 tok/s with 8 requests at once (not certain: single runs)" in answered(single)


def throttled(made: LevelResult) -> LevelResult:
    """Return the level with a reason to doubt it."""
    return made.model_copy(update={"validity": (Validity(code="throttled", message="a was throttled"),)})


def test_what_is_certain_comes_before_a_doubtful_maximum() -> None:
    """A mark that makes the most tokens unreliable does not make the level before it worse."""
    levels = [level(4, 80, 81, 82), throttled(level(8, 110, 111, 112))]
    best = "best without doubts: c = 4, 81.0 tok/s; "
    assert answered(levels).startswith(
        f"{best}c = 8 measured 111 tok/s, but is in doubt: throttled; TTFT p90 "
    )
    more = [level(4, 80, 81, 82), throttled(level(8, 80, 81, 82))]
    assert ", c = 8 gives no more (doubt: throttled); " in answered(more)


def test_of_doubtful_levels_what_holds_comes_first() -> None:
    """All throttled: the limit that holds comes first, then the maximum with its doubt, not as the best."""
    levels = [throttled(level(4, 80, 81, 82)), throttled(level(8, 110, 111, 112))]
    assert answered(levels).startswith("TTFT p90 stays under 2 s up to c = 8")
    assert "; most at c = 8: 111 tok/s (perhaps more: throttled), still rising" in answered(levels)
    late = [throttled(level(4, 80, 81, 82, ttft_ms=2500)), throttled(level(8, 110, 111, 112, ttft_ms=3000))]
    assert answered(late).startswith("most at c = 8: 111 tok/s (perhaps more: throttled)")
    assert answered(late).endswith("; TTFT p90 is over 2 s from c = 4 on")


def test_the_table_marks_the_level_of_the_headline() -> None:
    """◆ stands at the best token rate without a doubt."""
    found = findings(made_sweep(("a", [level(4, 80, 81, 82), throttled(level(8, 110, 111, 112))])))
    assert [row.ranks.get("decode_tps") for row in found.rows] == [Rank.BEST, None]


def test_few_requests_are_held_against_the_limit_by_their_longest_wait() -> None:
    """Seven requests have no 90th percentile: if all were in time, the next level decides."""
    few = level(1, 45, 46, 47, requests=7)
    assert answered([few]) == "c = 1, 46.0 tok/s; every TTFT under 2 s"
    late = level(1, 45, 46, 47, requests=7, ttft_ms=2500)
    assert answered([late]) == "c = 1, 46.0 tok/s"
    slow = level(4, 150, 151, 152, ttft_ms=2500)
    assert answered([slow]).endswith("; TTFT p90 is over 2 s from c = 4 on")
    waits = tuple(1400.0 + 200 * (index // 40) + index % 40 for index in range(120))
    each = EachRequest(run=tuple(index // 40 for index in range(120)), ttft_ms=waits)
    close = level(4, 150, 151, 152).model_copy(update={"ttft_ms": Latency.of_values(waits), "each": each})
    assert answered([few, close]).endswith("TTFT p90 stays under 2 s up to c = 4 (not certain)")


def test_a_level_with_failures_is_not_recommended() -> None:
    """A level that lost one request in ten is not the best, even with more tokens."""
    failing = level(8, 200, 201, 202).model_copy(update={"requests": Requests(ok=108, failed=12)})
    assert answered([level(4, 80, 81, 82), failing]).startswith("best: c = 4, 81.0 tok/s")


def test_an_early_end_is_named() -> None:
    """What was measured until then has a best level, but not "the best"."""
    result = made_sweep(("a", [level(1, 45, 46, 47), level(4, 150, 151, 152)]))
    cancelled = result.model_copy(update={"status": "cancelled"})
    assert (findings(cancelled).headline or "").startswith("best of what was measured: c = 4")


def test_nothing_measured_has_no_headline() -> None:
    """No level, no answer."""
    assert findings(made_sweep(("a", []))).headline is None


def test_several_lengths_have_an_answer_each() -> None:
    """By length where levels differ too; of one level the shortest and the longest prompt."""
    short, long = level(1, 45, 46, 47), level(1, 20, 21, 22)
    both = [short.model_copy(update={"pp": 5000}), long.model_copy(update={"pp": 39_000})]
    assert (
        answered(both) == "decode at c = 1: 46.0 tok/s with 5,000 tokens in, 21.0 tok/s with 39,000 tokens in"
    )
    more = [*both, level(4, 150, 151, 152).model_copy(update={"pp": 5000})]
    assert answered(more).startswith("5,000 tokens in: best: c = 4, 151 tok/s")
    assert "; 39,000 tokens in: c = 1, 21.0 tok/s" in answered(more)


def targets(*rates: tuple[float, float, float], at: Sequence[int] = (1, 4, 16)) -> SweepResult:
    """Return a sweep of "a" with 100, 101 and 102 tokens/s at each level, and of "b" with the given rates."""
    one = [level(concurrency, 100, 101, 102) for concurrency in at]
    other = [level(concurrency, *rate) for concurrency, rate in zip(at, rates, strict=True)]
    return made_sweep(("a", one), ("b", other))


def test_the_winner_of_several_targets() -> None:
    """From where up it wins and by how much, of the main token rate first."""
    result = targets((100, 101, 102), (124, 125, 126), (128, 129, 130))
    assert findings(result).headline == "b wins from c = 4 up: +24 to +28 % decode"
    assert findings(targets((124, 125, 126), (124, 125, 126), (124, 125, 126))).headline == (
        "b wins at every level: +24 % decode"
    )


def test_a_win_that_may_only_seem_to_be_one_says_so() -> None:
    """A doubt of the winner's level stands after the win; where others have none, with the level."""
    for code, word in (("hidden_tokens", "hidden tokens"), ("throttled", "throttled")):
        doubt = (Validity(code=code, message="x"),)
        fast = [level(at, 124, 125, 126).model_copy(update={"validity": doubt}) for at in (4, 8)]
        slow = [level(at, 100, 101, 102) for at in (4, 8)]
        found = findings(made_sweep(("a", slow), ("b", fast))).headline
        assert found == f"b wins at every level: +24 % decode (in doubt: {word})"
        half = [fast[0], level(8, 124, 125, 126)]
        found = findings(made_sweep(("a", slow), ("b", half))).headline
        assert found == f"b wins at every level: +24 % decode (in doubt at c = 4: {word})"


def test_no_winner_names_the_largest_lead_as_chance() -> None:
    """A lead that no test shows is there with its doubt."""
    result = targets((80, 101, 140), (100, 101, 102), (100, 101, 102))
    found = findings(result).headline or ""
    assert found == (
        "b +6 % decode at c = 1 may be chance: the runs differ too much to decide; "
        "no difference between the targets is shown in TTFT or prefill"
    )


def test_a_target_that_beats_some_but_not_all_is_no_winner() -> None:
    """A target that beats one of two others only is not a winner; its lead over the other may be chance."""
    made = [level(4, 99, 100, 101), level(4, 60, 88, 130), level(4, 79, 80, 81)]
    result = made_sweep(*((name, [decoding_only(one)]) for name, one in zip("abc", made, strict=True)))
    lead = "a +8 % decode at c = 4 may be chance: the runs differ too much to decide"
    assert findings(result).headline == lead
    assert f"**`a`{lead[1:]}.**" in sweep_report(result, "post")


def decoding_only(made: LevelResult) -> LevelResult:
    """Return the level without a prefill rate and without TTFT."""
    return made.model_copy(update={"prefill_tps": None, "ttft_ms": None})


_RATES = st.lists(st.sampled_from((0.5, 50.0, 51.0, 90.0, 100.0, 300.0)), min_size=1, max_size=3)
_LEVEL = st.tuples(st.sampled_from((1, 4)), _RATES)
_TARGET = st.lists(_LEVEL, min_size=1, max_size=2, unique_by=lambda one: one[0])


@settings(max_examples=60, deadline=None)
@given(st.lists(_TARGET, min_size=2, max_size=4))
def test_any_targets_have_a_headline(found: Sequence[Sequence[tuple[int, list[float]]]]) -> None:
    """Whatever was measured, each format has an answer, and the headline is not contradictory."""
    made = [
        (f"t{number}", [decoding_only(level(at, *rates)) for at, rates in levels])
        for number, levels in enumerate(found)
    ]
    result = made_sweep(*made)
    words = findings(result).headline or ""
    assert words
    assert "no difference between the targets is shown in decode" not in words or "decode at" not in words
    assert sweep_report(result, "post").startswith("## ")
    assert sweep_report(result, "md")


def test_a_search_is_answered_by_its_range() -> None:
    """The conditions of a search are its question."""
    holds = {"a": Holds(concurrency=16, interval=(16, 16))}
    slo = SloResult(conditions=("ttft_p90_ms ≤ 2000",), holds_to=holds)
    result = made_sweep(("a", [level(4, 100, 101, 102)])).model_copy(update={"slo": slo})
    assert findings(result).headline == "a: first token p90 ≤ 2 s holds to c = 16 and no further"


def test_every_report_begins_with_it() -> None:
    """Markdown, HTML and JSON; the stored file does not hold it, so that rules may become better."""
    result = made_sweep(("a", [level(1, 45, 46, 47), level(4, 150, 151, 152)]))
    words = findings(result).headline or ""
    capital = words[0].upper() + words[1:]
    assert f"**{capital}**" == " ".join(markdown.render(result).split("\n\n")[1].split())
    assert capital in sweep_report(result, "html")
    assert json.loads(json_file.render(result))["headline"] == words
    assert result.to_json()["headline"] is None
