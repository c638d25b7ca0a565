"""Words of sweeps of agents."""

from __future__ import annotations

from sparktop.model.load import LoadKind
from sparktop.sweep.result.results import (
    AgentsResult,
    Latency,
    LevelResult,
    Requests,
    TargetResult,
)
from sparktop.sweep.run.agents import conversation_doubts
from sparktop.sweep.terms.definitions import FEW_CALLS
from sparktop.sweep.view.words import (
    conversation_facts,
    conversation_sentence,
)


def latency(p50: float, p90: float | None = None, count: int = 40) -> Latency:
    """Return a latency with these quantiles."""
    return Latency(mean=p50, p50=p50, p90=p90, count=count)


def agents_level(number: int, tool: Latency | None, **more: object) -> LevelResult:
    """Return a level of agents with this TTFT after a tool."""
    found = AgentsResult.model_validate(
        {"calls": 60, "prompt_tokens": 1000, "cached_tokens": 920, "new_tokens": 40, **more}
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
        "4 agents: TTFT p90 0.52 s after a tool, 92 % of the prompts from the cache; "
        "8 agents: TTFT after a tool p90 over 2 s (3.40 s)"
    )


def test_few_calls_have_a_median_alone() -> None:
    """Without a 90th percentile the median is judged, and the sentence says so."""
    found = conversation_sentence(target(agents_level(4, latency(300, None, 12))))
    assert found is not None
    assert found.startswith("4 agents: TTFT p50 0.30 s after a tool")


def test_the_details_say_why_conversations_ended() -> None:
    """Errors by code, with the message of the last one; amplification and compactions."""
    level = agents_level(2, latency(300), early={"context": 2}, early_message="too long", compactions=3)
    facts = dict(conversation_facts(level))
    assert facts["Ended early"] == "2 (context 2): too long"
    assert facts["Compactions"] == "3"
    assert facts["From cache"] == "92.0 % of the prompts as answers report, 2.0 × the new tokens computed"


def test_few_calls_are_a_reason_to_doubt() -> None:
    """A 90th percentile needs 36 calls after a tool."""
    doubts = list(conversation_doubts(agents_level(1, latency(300, None, 12))))
    assert [one.code for one in doubts] == [FEW_CALLS]
    assert "12 calls after a tool" in doubts[0].message
    assert not list(conversation_doubts(agents_level(1, latency(300, 400))))
