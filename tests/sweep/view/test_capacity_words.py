"""The answer of a capacity search in words."""

from __future__ import annotations

from sparktop.model.load import LoadKind
from sparktop.sweep.result.results import (
    CapacityAnswer,
    CapacityResult,
    ConditionResult,
    ProbeResult,
    RanOut,
)
from sparktop.sweep.view.capacity import answer_words

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
        "best estimate 9 agents; 10 fail: p90 TTFT after a tool 3.6 s (limit 2 s); 95 % sure: 8 hold, 11 do "
        "not; KV cache ran out first: 98 % used, 3 preemptions (at 10)"
    )


def test_none_all_and_unfinished() -> None:
    """None hold; at least the most that was allowed; and what is known of a search that was stopped."""
    first = FAILING.model_copy(update={"value": 1.0})
    none = CapacityAnswer(holds=0, fails=1, complete=True, interval=(None, 1), probes=(first,))
    assert _words(none) == "none hold: 1 agent fails: p90 TTFT after a tool 3.6 s (limit 2 s); 95 % sure"
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
        "best estimate 2.83 requests/s; 3.1 /s fail: 93.0 % of 100 requests met the conditions (95 % sure of "
        "86.0 %, needs 95 %); p95 TTFT 3.6 s (limit 2 s); 95 % sure: 2.5 /s hold, 3.4 /s do not"
    )


def test_a_level_that_meets_the_conditions_by_a_hair_may_fail() -> None:
    """The levels beside it say so: the words do not state a failure that its own value contradicts."""
    met = FAILING.model_copy(
        update={
            "conditions": tuple(one.model_copy(update={"met_percent": 91.0}) for one in FAILING.conditions)
        }
    )
    answer = CapacityAnswer(holds=9, fails=10, complete=True, interval=(9, 11), probes=(met,))
    assert "; 10 probably fail, though within limits: p10 stream 14.2 tok/s (limit 15), 91 %" in _words(
        answer
    )

    def with_chance(percent: float) -> str:
        likely = met.model_copy(update={"fails_percent": percent})
        return _words(answer.model_copy(update={"probes": (likely,)}))

    assert with_chance(67.3).startswith(
        "9 agents hold; 10 probably fail (67 % by all levels), though within limits: p10 stream 14.2 tok/s "
        "(limit 15), 91 % of 120 requests met it (needs 90 %); "
    )
    certain = met.model_copy(update={"fails_percent": 98.0, "certain": True})
    assert "; 10 fail (98 % by all levels), though within limits: p10 stream" in _words(
        answer.model_copy(update={"probes": (certain,)})
    )


def test_a_level_that_is_not_certain_to_fail_probably_does() -> None:
    """As its sign says, whatever its own value is."""
    answer = CapacityAnswer(holds=9, fails=10, complete=True, interval=(9, 11))
    unsure = answer.model_copy(update={"probes": (FAILING.model_copy(update={"fails_percent": 80.0}),)})
    assert (
        "; 10 probably fail (80 % by all levels): p90 TTFT after a tool 3.6 s (limit 2 s), 71 % of 120 "
        in (_words(unsure))
    )
    certain = FAILING.model_copy(update={"fails_percent": 98.0, "certain": True})
    sure = answer.model_copy(update={"probes": (certain,)})
    assert _words(sure).startswith("9 agents hold; 10 fail: p90 TTFT after a tool 3.6 s (limit 2 s); ")
    rate = _words(unsure, AGENTS.model_copy(update={"load": LoadKind.RATE}))
    assert "; 10 /s probably fail (80 % by all levels): " in rate
