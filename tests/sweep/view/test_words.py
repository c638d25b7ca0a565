"""The answer of a sweep in one sentence: the best level or target, how certain, and the limit of TTFT.

Words of sweeps of agents.

What a search found, in a sentence.

The answer of a capacity search in words.

The sentence on a sweep over rates: up to which rate a target keeps up, and how it fails beyond.

What a sweep that replays recorded traffic says: one target, several, and where one does not keep up.

What a screen says of finished levels: marks, ranks, advice, differences, the history.

Changes that are not significant: none shown, not certain, or too small to count.

The marks of a level: what limited it stands in the first label, which narrow tables always show.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sparktop.model.judgement import NO_DIFFERENCE
from sparktop.model.load import Level, LoadKind, LoadMode, concurrency_point
from sparktop.model.sweep import NOT_CERTAIN, WITHIN_NOISE, ColumnRank, DifferenceRow, Value
from sparktop.sweep.compare.compare import compare
from sparktop.sweep.compare.series import UNSTATED_WORDS, load_reference, published_series
from sparktop.sweep.formats.report import comparison_markdown
from sparktop.sweep.formats.written import capacity_text, sweep_report
from sparktop.sweep.history import stored_row
from sparktop.sweep.result.results import (
    AgentsResult,
    CapacityAnswer,
    CapacityResult,
    ConditionResult,
    Holds,
    Latency,
    LevelResult,
    LimitSide,
    OpenLoopResult,
    ProbeResult,
    RanOut,
    Rate,
    ReplayResult,
    RequestColumns,
    Requests,
    ServerSide,
    SloResult,
    SweepResult,
    TargetResult,
    TracePlan,
)
from sparktop.sweep.terms.definitions import CUT_SHORT
from sparktop.sweep.view.capacity import answer_words
from sparktop.sweep.view.curves import sweep_plots
from sparktop.sweep.view.difference import difference
from sparktop.sweep.view.levels import level_facts
from sparktop.sweep.view.marks import marks_of
from sparktop.sweep.view.result import result_view, topologies
from sparktop.sweep.view.words import conversation_facts, conversation_sentence, rate_sentence, slo_sentences
from tests.known import known
from tests.sweep.made_results import doubts, level_at_rate, made_level, made_series, made_sweep, with_target


def level(concurrency: int, *rates: float, ttft_ms: float = 100.0, requests: int = 120) -> LevelResult:
    """Return a level whose runs decode at `rates`; requests waited from 0.9 to 1.1 times `ttft_ms`."""
    waits = [ttft_ms * (0.9 + 0.2 * (index % 10) / 9) for index in range(requests)]
    runs = [index * 3 // requests for index in range(requests)]
    return made_level(
        concurrency,
        decode_tps=Rate.of_runs(rates),
        ttft_ms=Latency.of_values(waits),
        requests=Requests(ok=requests),
        validity=(),
        each=RequestColumns(run=tuple(runs), ttft_ms=tuple(waits)),
    )


def answered(levels: Sequence[LevelResult], **changes: object) -> str:
    """Return the headline of a sweep of one target with the given levels."""
    return result_view(made_sweep(("a", levels), plan=changes)).headline or ""


def test_the_best_level_with_its_wait() -> None:
    """The lowest level below no clearly higher one, what its requests wait, and which have no clear gain."""
    levels = [
        level(1, 45, 46, 47),
        level(16, 300, 301, 302, ttft_ms=1500),
        level(32, 409, 410, 411, ttft_ms=3000),
        level(64, 408, 411, 414, ttft_ms=9000),
    ]
    best = "c = 32 is enough: 410.0 tok/s decode; mean TTFT 3,000 ms"
    assert answered(levels) == f"{best}; no clear gain at c = 64"


def test_what_rises_is_said_to_rise() -> None:
    """The best is the last: the limit of a sweep that goes on is named, else the next level is suggested."""
    levels = [level(1, 45, 46, 47), level(4, 150, 151, 152)]
    best = "best: c = 4, 151.0 tok/s decode; mean TTFT 100 ms; still rising: try c = 8"
    assert answered(levels) == best
    assert answered(levels, climb_to=4).endswith("; still rising at c = 4, the largest tried")
    for slots in (4, 3):
        full = with_target(made_sweep(("a", levels)), slots=slots)
        assert (result_view(full).headline or "").endswith(f"; requests beyond its {slots} slots wait")


def test_chance_is_named() -> None:
    """A lower level that may be as good makes the best one uncertain; single runs always are."""
    unsure = [level(4, 96, 100, 104), level(8, 98, 104, 110)]
    assert answered(unsure).startswith("c = 4 is enough: 100.0 tok/s")
    assert answered(unsure).endswith("; no clear gain at c = 8")
    lower = [*unsure, level(16, 50, 51, 52)]
    assert answered(lower).endswith("; no clear gain at c = 8; at c = 16 −49 %")
    for runs, why in (
        ((80, 100, 120), "runs differ too much to tell"),
        ((80, 120), "too few runs to tell, --runs 3"),
    ):
        scattered = answered([level(4, *runs), level(8, 90, 190, 230)])
        assert scattered.startswith("best: c = 8, 170.0 tok/s decode; ")
        assert scattered.endswith(f"; c = 4 may be as good: {why}")
    single = [level(4, 100), level(8, 110)]
    assert "; too few runs to test; still rising" in answered(single)


def test_every_value_far_from_the_best_that_is_not_clear_may_be_as_good() -> None:
    """Of 332, 245 and 190, in two runs each, neither is clear: the farthest is not the most alike."""
    rates = {"a": (189, 192), "b": (302, 362), "c": (243, 247)}
    found = result_view(made_sweep(*((name, [level(32, *runs)]) for name, runs in rates.items())))
    ranks = [row.ranks.get("decode_tps") for row in found.rows]
    assert ranks == [ColumnRank.SCATTERED, ColumnRank.BEST, ColumnRank.SCATTERED]


def throttled(made: LevelResult) -> LevelResult:
    """Return the level with a warning."""
    return made.model_copy(update={"validity": doubts("throttled")})


@pytest.mark.parametrize("warned", [(), (8,), (4, 16)])
def test_the_best_is_the_best_whatever_warnings_it_has(warned: Sequence[int]) -> None:
    """263, 344 and 309 tok/s: 344 is the best in sentence and table, and a warning stands beside it."""
    rates = {4: (262, 263, 264), 8: (343, 344, 345), 16: (308, 309, 310)}
    levels = [throttled(level(at, *runs)) if at in warned else level(at, *runs) for at, runs in rates.items()]
    found = result_view(made_sweep(("a", levels)))
    assert [row.ranks.get("decode_tps") for row in found.rows] == [None, ColumnRank.BEST, None]
    words = found.headline or ""
    assert words.startswith("best: c = 8, 344.0 tok/s")
    assert ("tok/s decode (warning: throttled); mean TTFT 100 ms" in words) is (8 in warned)
    assert "at c = 16 −10 %" in words


def test_what_was_cut_short_is_the_best_only_beside_its_like() -> None:
    """The sentence, the marks of the table and the list of results name the same level."""
    whole = [level(32, 500, 501, 502), level(64, 650, 651, 652)]
    cut = level(96, 748, 749, 750).model_copy(update={"validity": doubts(CUT_SHORT)})
    for levels, best in (([*whole, cut], 651.0), ([cut], 749.0)):
        result = made_sweep(("a", levels))
        found = result_view(result)
        assert f" {best} tok/s" in (found.headline or "").split(";")[0]
        assert ("best of the finished levels: " in (found.headline or "").lower()) is (best == 651.0)
        assert stored_row(result, "a.json").decode_tps == best
        assert found.words == f"done: {len(levels) - 1} levels, 1 unfinished"
    assert "; at c = 96 +15 % (warning: unfinished)" in answered([*whole, cut])
    ranks = [row.ranks.get("decode_tps") for row in result_view(made_sweep(("a", [*whole, cut]))).rows]
    assert ranks == [None, ColumnRank.BEST, None]


def test_kinds_of_text_have_their_accepted_drafts_and_warnings() -> None:
    """The kinds on which most and fewest drafts are accepted, each with its warning."""

    def of_text(text: str, rate: float, share: float) -> LevelResult:
        server = ServerSide(spec_accept_percent=share)
        return level(4, rate, rate + 1, rate + 2).model_copy(update={"text": text, "server": server})

    levels = [of_text("code", 95, 81), throttled(of_text("prose", 60, 44))]
    words = "code 96.0 tok/s (81 % of drafts accepted); prose 61.0 tok/s (44 %) (warning: throttled)"
    assert result_view(made_sweep(("a", levels), ("b", levels))).headline == f"a: {words}; b: {words}"


def test_several_lengths_have_an_answer_each() -> None:
    """By length, with what there is at each."""
    short, long = level(1, 45, 46, 47), level(1, 20, 21, 22)
    both = [short.model_copy(update={"pp": 5000}), long.model_copy(update={"pp": 39_000})]
    more = [*both, level(4, 150, 151, 152).model_copy(update={"pp": 5000})]
    assert answered(more).startswith("5,000 tokens in: best: c = 4, 151.0 tok/s")
    assert "; 39,000 tokens in: c = 1, 21.0 tok/s" in answered(more)


def targets(*rates: tuple[float, float, float]) -> SweepResult:
    """Return a sweep of "a" with 100, 101 and 102 tokens/s at each level, and of "b" with the given rates."""
    one = [level(concurrency, 100, 101, 102) for concurrency in (1, 4, 16)]
    other = [level(concurrency, *rate) for concurrency, rate in zip((1, 4, 16), rates, strict=True)]
    return made_sweep(("a", one), ("b", other))


def test_the_winner_of_several_targets() -> None:
    """From where up it wins and by how much, of the main token rate first."""
    result = targets((100, 101, 102), (124, 125, 126), (128, 129, 130))
    assert result_view(result).headline == "b wins from c4 up: +24 to +28 % decode against a"


def test_a_win_that_may_only_seem_to_be_one_says_so() -> None:
    """A doubt of the winner's level stands after the win; where others have none, with the level."""
    for code, word in (("hidden_tokens", "tokens not streamed"), ("throttled", "throttled")):
        fast = [level(at, 124, 125, 126).model_copy(update={"validity": doubts(code)}) for at in (4, 8)]
        slow = [level(at, 100, 101, 102) for at in (4, 8)]
        for last, where in ((fast[1], ""), (level(8, 124, 125, 126), " at c4")):
            found = result_view(made_sweep(("a", slow), ("b", [fast[0], last]))).headline
            assert found == f"b wins at every level: +24 % decode against a (warning{where}: {word})"


def test_no_winner_names_the_largest_lead() -> None:
    """A lead that no test shows is there, with whom it refers to, and as not clear."""
    result = targets((95, 99, 103), (100, 101, 102), (100, 101, 102))
    assert result_view(result).headline == (
        "no clear difference between the targets in decode, TTFT or prefill "
        "(in decode at most a +2 % against b, at c1)"
    )
    more = [level(at, 100, 101, 102) for at in (1, 4, 16)]
    cut_short = known(result_view(made_sweep(("a", more), ("b", more[:1]))).headline)
    assert cut_short.endswith(", compared at c1 alone")


def latency(p50: float, p90: float | None = None) -> Latency:
    """Return a latency with these quantiles."""
    return Latency(mean=p50, p50=p50, p90=p90, count=40)


def agents_level(number: int, tool: Latency | None, **more: object) -> LevelResult:
    """Return a level of agents with this TTFT after a tool."""
    found = AgentsResult.model_validate(
        {
            "calls": 60,
            "prompt_tokens": 1000,
            "cached_tokens": 920,
            "new_tokens": 40,
            "turns": [{"name": "1"}],
            **more,
        }
    ).model_copy(update={"after_tool_ms": tool})
    return LevelResult(
        concurrency=number, load=LoadKind.AGENTS, value=number, requests=Requests(ok=60), agents=found
    )


def target(*levels: LevelResult) -> TargetResult:
    """Return a target with these levels."""
    return TargetResult(name="a", url="http://127.0.0.1", levels=levels)


def test_the_answer_is_up_to_how_many_agents_the_first_token_comes_soon() -> None:
    """The last level within the limit, its figures, and the first one beyond it."""
    found = conversation_sentence(
        target(agents_level(4, latency(300, 520)), agents_level(8, latency(900, 3400)))
    )
    assert found == (
        "4 agents: TTFT p90 520 ms after a tool, 92 % of the prompts from the cache; "
        "8 agents: TTFT after a tool p90 over 2 s (3,400 ms)"
    )
    alone = conversation_sentence(target(agents_level(4, None, first_ms=latency(900, 3400))))
    assert alone == "4 agents: TTFT of first calls p90 over 2 s (3,400 ms)"


def test_the_details_say_why_conversations_ended() -> None:
    """Errors by code, with the message of the last one; amplification and compactions."""
    level = agents_level(2, latency(300), early={"context": 2}, early_message="too long", compactions=3)
    facts = dict(conversation_facts(level))
    assert facts["Ended early"] == "2 (context 2): too long"
    assert facts["Compactions"] == "3"
    assert facts["From cache"] == "92 % of the prompts as answers report, 2.0 × the new tokens computed"


def said(holds: Holds, *conditions: str) -> str:
    slo = SloResult(conditions=conditions or ("ttft_p90_ms ≤ 2000",), holds_to={"a": holds})
    (sentence,) = slo_sentences(made_sweep(("a", []), slo=slo))
    return sentence.removeprefix("a: ")


@pytest.mark.parametrize(
    ("concurrency", "interval", "words"),
    [
        (6, (6, 8), "holds up to c = 6, perhaps up to 8, not beyond (more runs narrow this)"),
        (6, (6, None), "holds up to c = 6 at least: it is not sure that any level fails"),
        (
            None,
            (None, 3),
            "holds at no concurrency for sure, perhaps up to c = 3, not beyond (more runs narrow this)",
        ),
    ],
)
def test_an_upper_end_is_said_with_its_interval(
    concurrency: int | None, interval: tuple[int | None, int | None], words: str
) -> None:
    """From a limit that is known exactly to one that is not known at all."""
    assert said(Holds(concurrency=concurrency, interval=interval)) == f"first token p90 ≤ 2 s {words}"


def test_a_range_is_said_with_both_ends() -> None:
    """Each end has what it may be, where that is more."""
    found = Holds(concurrency=40, interval=(40, 44), from_concurrency=24, from_interval=(21, 24))
    assert said(found, "output_tps ≥ 600", "ttft_p90_ms ≤ 2000") == (
        "output ≥ 600 tok/s and first token p90 ≤ 2 s hold from c = 24 (perhaps from 21) to 40 "
        "(perhaps to 44)"
    )
    open_ended = Holds(concurrency=64, interval=(64, None), from_concurrency=24, from_interval=(24, 24))
    assert said(open_ended, "output_tps ≥ 600").endswith("holds from c = 24 to 64, the largest tried")
    none = Holds(concurrency=None, interval=(None, None), from_concurrency=None, from_interval=(129, None))
    assert said(none, "output_tps ≥ 2000").endswith("at no concurrency for sure: it takes c = 129 at least")


AFTER_TOOL = ConditionResult(
    condition="ttft_tool_p90_ms ≤ 2000",
    figure="ttft_tool_p90_ms",
    limit=2000.0,
    value=3600.0,
    needed_percent=90.0,
    met_percent=71.0,
    interval_percent=(60.0, 80.0),
    requests=120,
)
STREAM = ConditionResult(
    condition="stream_tps ≥ 15",
    figure="stream_tps",
    limit=15.0,
    at_least=True,
    value=14.2,
    needed_percent=90.0,
    met_percent=88.0,
    interval_percent=(80.0, 94.0),
    requests=120,
)
AGENTS = CapacityResult(load=LoadKind.AGENTS, conditions=("ttft_tool_p90_ms ≤ 2000", "stream_tps ≥ 15"))
FAILING = ProbeResult(value=10, holds=False, certain=False, requests=120, conditions=(STREAM, AFTER_TOOL))
RAN_OUT = RanOut(kind="KV cache", evidence="98 % used, 3 preemptions", value=10)


def _words(answer: CapacityAnswer, found: CapacityResult = AGENTS) -> str:
    return "; ".join(answer_words(found, answer))


def test_what_holds_what_fails_how_certain_and_what_ran_out() -> None:
    """In one sentence, with the condition that is missed most."""
    answer = CapacityAnswer(
        holds=9, fails=10, complete=True, interval=(8, 11), ran_out=RAN_OUT, probes=(FAILING,)
    )
    assert _words(answer) == (
        "best estimate 9 agents; 10 fail: p90 TTFT after a tool 3,600 ms (limit 2,000 ms); 95 % sure: 8 "
        "hold, 11 do not; KV cache ran out first: 98 % used, 3 preemptions (at 10)"
    )


def test_none_all_and_unfinished() -> None:
    """None hold; at least the most that was allowed; and what is known of a search that was stopped."""
    first = FAILING.model_copy(update={"value": 1.0})
    none = CapacityAnswer(holds=0, fails=1, complete=True, interval=(None, 1), probes=(first,))
    assert (
        _words(none) == "none hold: 1 agent fails: p90 TTFT after a tool 3,600 ms (limit 2,000 ms); 95 % sure"
    )
    most = CapacityAnswer(holds=64, at_least=True, complete=True, interval=(64, None))
    assert _words(most) == "at least 64 agents hold; 95 % sure: 64 hold"
    stopped = CapacityAnswer(holds=4, interval=(2, None))
    assert _words(stopped) == "best estimate so far 4 agents; 95 % sure: 2 hold; the search was not completed"


def test_a_rate_has_its_share_and_the_bound_that_decides() -> None:
    """Beside the limit that was missed most."""
    together = ConditionResult(
        condition="all", needed_percent=95.0, met_percent=93.0, interval_percent=(86.0, 97.0), requests=100
    )
    late = AFTER_TOOL.model_copy(update={"figure": "ttft_p90_ms", "needed_percent": 95.0})
    probe = ProbeResult(value=3.1, holds=False, certain=False, requests=100, conditions=(late, together))
    answer = CapacityAnswer(
        holds=2.83, fails=3.1, complete=True, interval=(2.5, 3.4), probes=(probe,), ran_out=None
    )
    assert _words(answer, AGENTS.model_copy(update={"load": LoadKind.RATE})) == (
        "best estimate 2.83 requests/s; 3.1 /s fail: 93.0 % of 100 requests met the conditions (95 % must); "
        "p95 TTFT 3,600 ms (limit 2,000 ms); 95 % sure: 2.5 /s hold, "
        "3.4 /s do not"
    )


def test_a_level_that_meets_the_conditions_by_a_hair_may_fail() -> None:
    """The levels beside it say so: the words do not state a failure that its own value contradicts."""
    conditions = tuple(one.model_copy(update={"met_percent": 91.0}) for one in FAILING.conditions)
    met = FAILING.model_copy(update={"conditions": conditions})
    answer = CapacityAnswer(holds=9, fails=10, complete=True, interval=(9, 11), probes=(met,))
    assert "; 10 probably fail, though within limits: p10 speed 14.2 tok/s (limit 15), 91 %" in _words(answer)
    for percent, words in (
        (67.3, "9 agents hold; 10 probably fail (with a probability of 67 %, by all levels)"),
        (67.3, ", though within limits: p10 speed 14.2 tok/s (limit 15), 91 % of 120 requests met it (90 %"),
        (98.0, "; 10 fail (with a probability of 98 %, by all levels), though within limits: p10 speed"),
    ):
        probe = met.model_copy(update={"fails_percent": percent, "certain": percent > 95})
        assert words in _words(answer.model_copy(update={"probes": (probe,)}))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "perhaps 8 agents"),
        ({"complete": False}, "so far perhaps 8 agents"),
        ({"at_least": True}, "perhaps 8 agents or more"),
    ],
)
def test_a_level_that_is_not_certain_to_hold_perhaps_does(changes: dict[str, bool], words: str) -> None:
    """Where no smaller one is certain to hold; of one request, in the singular."""
    probe = FAILING.model_copy(update={"value": 8.0, "holds": True, "fails_percent": 40.0, "requests": 1})
    answer = CapacityAnswer(holds=8, complete=True, probes=(probe,)).model_copy(update=changes)
    told = _words(answer)
    assert told.partition("; ")[0] == words
    assert "not certain: too few requests" in told
    result = made_sweep(("a", []), capacity=AGENTS.model_copy(update={"answers": {"a": answer}}))
    assert result_view(result).searches[0].at == "8 agents, 1 request"
    (tried,) = (line for line in capacity_text(result).splitlines() if line.startswith("  ?"))
    assert tried.endswith(" (1 request, holds with a probability of 60 %)")
    searched = made_sweep(("a", [made_level(8)]), capacity=result.capacity)
    report, post = (" ".join(sweep_report(searched, form).split()) for form in ("md", "post"))
    assert f"Loads that were tried - {tried.strip()}" in report
    assert "| c8 | 60 % ? |" in post
    assert "?: not certain, before it the probability that the condition holds." in post
    assert ["Condition: " in text and "3 runs a level or more" in text for text in (report, post)] == [
        True
    ] * 2
    certain = answer.model_copy(update={"probes": (probe.model_copy(update={"certain": True}),)})
    assert "perhaps" not in _words(certain)


def words(*levels: LevelResult) -> str | None:
    return rate_sentence(TargetResult(name="solo", url="http://127.0.0.1:1", levels=levels))


def test_the_sentence_names_the_highest_rate_below_the_first_that_failed() -> None:
    """A rate beyond a failed one does not count, whatever it shows."""
    growing = level_at_rate(2.0, OpenLoopResult(unstable=True, ttft_growth=0.43))
    found = words(level_at_rate(1.0), growing, level_at_rate(4.0))
    assert found == "keeps up with 1 /s, not with 2 /s: TTFT grows by 0.43 s each second"
    assert words(growing) == "does not keep up with 2 /s: TTFT grows by 0.43 s each second"
    assert words(level_at_rate(1.0), level_at_rate(2.0)) == "keeps up with 2 /s, the highest rate measured"


def test_a_server_that_refuses_requests_does_not_keep_up() -> None:
    """One that answers 503 to many has short queues, and no growth."""
    assert words(level_at_rate(1.0), level_at_rate(2.0, ok=60, failed=40)) == (
        "keeps up with 1 /s, not with 2 /s: 40 of 100 requests failed"
    )
    assert words(level_at_rate(2.0, OpenLoopResult(overloaded=True, in_flight_limit=512))) == (
        "does not keep up with 2 /s: 512 requests in flight, the limit of the client"
    )


def test_a_level_that_was_cut_short_is_no_limit() -> None:
    """A server that died, or a sweep that was stopped, shows no rate that the server cannot take."""
    died = level_at_rate(2.0, ok=1, failed=8).model_copy(update={"validity": doubts(CUT_SHORT)})
    assert words(level_at_rate(1.0), died) == f"keeps up with 1 /s; {words(died)}"
    assert words(died) == "2 /s was not finished: 8 of 9 requests failed"
    stopped = level_at_rate(2.0, ok=9).model_copy(update={"validity": doubts(CUT_SHORT)})
    assert words(level_at_rate(0.5), level_at_rate(1.0), stopped) == (
        "keeps up with 1 /s, the highest rate measured; 2 /s was not finished"
    )


TRACE = TracePlan(name="day.csv", path="day.csv", form="azure", speed=2.0, requests=400)


def replayed_latency(mean_ms: float) -> Latency | None:
    """Return a latency of three runs."""
    means = [mean_ms * factor for factor in (0.99, 1.0, 1.01)]
    return Latency.of_values([value for value in means for _ in range(100)], means)


def replayed_level(ttft_ms: float, *, unstable: bool = False) -> LevelResult:
    """Return a level of three runs with about this TTFT and E2E from the due time."""
    return LevelResult(
        concurrency=512,
        load=LoadKind.RATE,
        value=2.5,
        trace="day.csv",
        runs=3,
        requests=Requests(ok=1200),
        output_tps=Rate.of_runs([99.0, 100.0, 101.0]),
        ttft_due_ms=None if unstable else replayed_latency(ttft_ms),
        e2e_due_ms=None if unstable else replayed_latency(ttft_ms),
        open_loop=OpenLoopResult(offered_per_s=2.5, unstable=unstable, ttft_growth=0.5 if unstable else None),
        replay=ReplayResult(prompt_tokens=1000, cached_tokens=870),
    )


def result(**levels: LevelResult) -> SweepResult:
    """Return the result of a sweep of these targets."""
    plan = {"mode": LoadMode.OPEN, "load": LoadKind.RATE, "points": ("2.5",), "trace": TRACE}
    return made_sweep(*((name, (one,)) for name, one in levels.items()), plan=plan)


def test_one_target_keeps_up_with_the_trace() -> None:
    """Its rate, its latency and its cache hits are the answer."""
    assert result_view(result(a=replayed_level(500))).headline == (
        "keeps up with 2.5 /s of day.csv (100.0 tok/s output, TTFT p90 505 ms from when a request was due, "
        "87 % of the "
        "prompt tokens cached)"
    )
    assert "Arrivals" not in dict(level_facts(replayed_level(500)))  # none were counted


def test_the_latencies_of_two_targets_on_one_trace_are_compared() -> None:
    """Three runs each show which one is sooner; tok/s follow from the trace and decide nothing."""
    found = result_view(result(a=replayed_level(500), b=replayed_level(400)))
    assert found.headline == "b wins at 2.5/s: −20 % TTFT due, −20 % E2E due against a"
    assert len(known(found.topologies).sentences) == 2
    report = sweep_report(result(a=replayed_level(500), b=replayed_level(400)), "md")
    assert "| Rate " in report
    assert "c0" not in report


def test_a_target_that_does_not_keep_up_is_named_first_of_all() -> None:
    """It has no latency to compare; each target's own answer is shown."""
    found = result(a=replayed_level(500), b=replayed_level(400, unstable=True))
    headline = known(result_view(found).headline)
    assert "a: keeps up with 2.5 /s of day.csv" in headline
    assert "b: does not keep up with 2.5 /s of day.csv: TTFT grows by 0.50 s each second" in headline


def rated(concurrency: int, *values: float) -> LevelResult:
    """Return a level whose runs decode at the given rates."""
    mean = sum(values) / len(values)
    found = Rate(mean=mean, values=values, std=1.0, ci95=(mean - 1, mean + 1))
    return made_level(concurrency, decode_tps=found)


def test_marks_put_the_gravest_first() -> None:
    """If there is room for one mark, a reason for doubt precedes a reason for slowness."""
    level = made_level(
        validity=doubts("few_runs", "queue_limited", "errors"),
        server=ServerSide(kv_cache_max_percent=99.5, preemptions=3),
        padding_percent=37.5,
    ).model_copy(update={"concurrency": 5})
    marks = marks_of(level)
    assert " ".join(mark.code for mark in marks) == (
        "errors queue_limited few_runs kv_full preempting padding"
    )
    assert [mark.doubt for mark in marks] == [True, True, True, False, False, False]
    assert "a CUDA graph of 8" in marks[-1].message


def test_the_judgement_follows_the_crossovers() -> None:
    """One engine over both machines up to c = 32, the shuffled pair at 64: as its authors say."""
    reference = load_reference("spark-topologies-2026-03")
    published = published_series(reference)
    compared = topologies(compare(published), published)
    assert compared.sentences[0] == (
        "Decode: cluster-tp2 best at c1–c32 (+5 to +30 % against simple-shuffle); "
        "simple-shuffle best at c64 (+20 % against cluster-tp2)"
    )
    assert list(compared.crossovers) == [
        "Decode: cluster-tp2 → simple-shuffle between c32 and c64 (as published)",
        "Prefill: cluster-tp2 → simple-shuffle between c8 and c16 (as published)",
        "TTFT: cluster-tp2 → simple-shuffle between c4 and c8 (as published)",
    ]


def test_conditions_are_lines_on_their_curves() -> None:
    """What was wanted lies across TTFT."""
    slo = SloResult(conditions=("ttft_p90_ms ≤ 2000",), holds_to={"a": Holds(concurrency=6, interval=(6, 8))})
    result = made_sweep(("a", (rated(1, 55), rated(2, 80))), slo=slo)
    plots = {one.metric: one for one in sweep_plots(result)}
    assert [one.value for one in plots["ttft_ms"].limits] == [2000.0]
    assert plots["decode_tps"].limits == ()
    assert "holds up to c = 6, perhaps up to 8, not beyond" in (result_view(result).headline or "")


def row(percent: float, low: float, high: float, *, significant: bool = False) -> DifferenceRow:
    return DifferenceRow(
        "Decode",
        "tok/s",
        more_is_better=True,
        key=Level("", concurrency_point(4)),
        before=Value(100.0),
        after=Value(100.0 + percent),
        percent=percent,
        low_percent=low,
        high_percent=high,
        significant=significant,
        noise_floor_percent=1.0,
    )


@pytest.mark.parametrize(
    ("one", "word"),
    [
        (row(3.8, -0.8, 8.6), NO_DIFFERENCE),
        (row(19.0, 0.1, 40.0), NOT_CERTAIN),
        (row(0.6, 0.2, 1.0), WITHIN_NOISE),
        (row(31.0, 26.0, 37.0, significant=True), None),
    ],
)
def test_an_interval_without_zero_is_never_called_no_difference(one: DifferenceRow, word: str | None) -> None:
    """The words say what the drawn interval shows."""
    assert one.undecided == word


@pytest.mark.parametrize(
    ("pp", "tg", "verdict", "percent"),
    [
        (1024, 128, "not alike: prompt / output tokens: 100 / 4 (a); 1024 / 128 (b)", None),
        (None, None, f"b: {UNSTATED_WORDS}", pytest.approx(198.0, abs=0.1)),
    ],
)
def test_results_of_other_lengths_have_no_better_one(
    pp: int | None, tg: int | None, verdict: str, percent: float | None
) -> None:
    """The first sentence says that the loads are not, or perhaps not, alike; no sentence names a lead."""
    slow = made_series("a", {1: (10.0, 10.1, 10.2)})
    fast = {1: (30.0, 30.1, 30.2)}
    unlike = difference(slow, made_series("b", fast, pp=pp, tg=tg))
    assert unlike.verdict == verdict
    assert [(row.percent, row.better) for row in unlike.rows] == [(percent, None)]
    assert difference(slow, made_series("b", fast)).rows[0].better is True


def test_a_comparison_ends_with_its_answer() -> None:
    """A terminal shows the last lines of a long report."""
    pair = [made_series("a", {1: (10.0, 10.1, 10.2)}), made_series("b", {1: (30.0, 30.1, 30.2)})]
    report = comparison_markdown(compare(pair), pair)
    assert report.strip().splitlines()[-1] == "**Decode: `b` best at c1 (+198 % against `a`).**"
    assert "### Answer" not in comparison_markdown(compare(pair[:1]), pair[:1])


@pytest.mark.parametrize("kind", ["client", "client or router"])
def test_that_a_sweep_sends_no_more_is_no_reason_why_a_level_is_slow(kind: str) -> None:
    """The client is the sweep; that it may be the router is not known."""
    limit = LimitSide(kind=kind, reason="no request in 17 % of the time")
    assert not marks_of(made_level(limited_by=limit))
