"""Prompt lengths beyond a server's context: skipped with the server's words; the rest is measured.

Levels with depth: the context first, then the prompts, whose context the prefix cache has.
"""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from sparktop.commands.sweep.run import verdict
from sparktop.model.engine import EngineIdentity
from sparktop.model.load import EndReason, Level, RequestEnded, concurrency_point
from sparktop.store import SourceKey
from sparktop.sweep.formats import exports, report
from sparktop.sweep.formats.written import repeat_command
from sparktop.sweep.plan.plan import Order, Plan
from sparktop.sweep.plan.slo import parse_slo
from sparktop.sweep.result.measure import RequestTrace
from sparktop.sweep.result.results import Latency, LevelResult, Requests, SweepResult
from sparktop.sweep.run.depth import context_part
from sparktop.sweep.run.progress import PhaseChanged, SweepPhase
from sparktop.sweep.run.server_side import Counters
from sparktop.sweep.terms.definitions import CACHE_HITS
from sparktop.sweep.view.live import LiveView
from sparktop.sweep.view.words import depth_sentences
from tests.known import known
from tests.sweep.made_results import made_sweep
from tests.sweep.stream_server import Asked
from tests.sweep.trouble_bench import Bench
from tests.sweep.watched_servers import PATIENT, watched

CONTEXT = 200


WORDS = f"This model's maximum context length is {CONTEXT} tokens"


async def swept(bench: Bench, words: str = WORDS, **changes: object) -> tuple[SweepResult, LiveView]:
    """Sweep a server with a length that fits its context and one that does not, which it refuses."""

    async def answer(asked: Asked) -> None:
        if asked.prompt_tokens + asked.tokens > CONTEXT:
            asked.refuse(400, words)
        else:
            await asked.stream()

    bench.server.behave = answer
    lengths = Plan((bench.target,), (2,), prompt_lengths=(40, 300), pp=40, tg=9, runs=1, timeouts=PATIENT)
    plan = replace(lengths, **changes)  # type: ignore[arg-type]  # fields of Plan, by name
    runner, view = bench.runner(plan), LiveView(plan)
    runner.listen(view.take)
    return await runner.run(), view


def shown(result: SweepResult) -> list[tuple[int | None, bool, str | None]]:
    """Return for each level its length, whether it has figures, and the reason why not."""
    return [(one.pp, one.output_tps is not None, one.error) for one in result.targets[0].in_order()]


@pytest.mark.process
async def test_a_length_beyond_the_context_is_skipped_and_the_rest_measured(bench: Bench) -> None:
    """The refused level has no figures and the server's words; the sweep is done, its exit code is 1."""
    result, _ = await swept(bench, order=Order.ABBA)
    (fits, refused) = shown(result)
    assert fits == (40, True, None)
    assert refused[:2] == (300, False)
    assert WORDS in (refused[2] or "")
    assert (result.status, result.targets[0].error) == ("done", None)
    assert verdict(result, Plan((bench.target,))) == 1
    sent = [one["messages"][0]["content"] for one in bench.server.bodies if one["max_tokens"] == 9]
    assert max(map(bench.server.count, sent)) < CONTEXT


@pytest.mark.process
async def test_a_reported_context_needs_no_request(bench: Bench) -> None:
    """What the server's own page says is enough: nothing too long is sent."""
    bench.store.identify(SourceKey.backend("solo"), EngineIdentity("1", "tiny", CONTEXT))
    result, _ = await swept(bench)
    (_, refused) = shown(result)
    assert result.targets[0].levels[0].pp == 300  # it stands before the first level is measured
    assert refused[2] == f"solo takes at most {CONTEXT:,} tokens a request; pp 300 and tg 9 need 309"
    assert max(bench.server.count(one["messages"][0]["content"]) for one in bench.server.bodies) < CONTEXT


@pytest.mark.process
@pytest.mark.parametrize(
    ("words", "least"), [(f"the context length is only {CONTEXT} tokens", CONTEXT - 9), ("too long", 170)]
)
async def test_the_largest_length_that_fits_is_found_and_measured(
    bench: Bench, words: str, least: int
) -> None:
    """It is exact if the refusal names the context, else found by halves; the exit code is 0."""
    result, _ = await swept(bench, words, longest=True)
    found = shown(result)
    assert [(one[0], one[1]) for one in (found[0], found[2])] == [(40, True), (300, False)]
    longest, has_figures, _ = found[1]
    assert has_figures
    assert least <= (longest or 0) <= CONTEXT - 9
    assert f"{longest} tokens fit" in (found[2][2] or "")
    assert verdict(result, Plan((bench.target,), longest=True)) == 0


@pytest.mark.process
@pytest.mark.timeout(600)
async def test_a_level_with_depth_sends_the_context_first() -> None:
    """Each run sends its contexts alone, then the prompts after them; all forms show both kinds of row."""
    async with watched() as servers:
        spec = {"concurrency": (1, 2), "depths": (0, 512), "runs": 2, "tg": 32, "warmup": False}
        plan = servers.plan(None, **spec, slo=parse_slo("tpot_mean_ms=1000"))
        result = await servers.runner(plan).run()
    phases = [one.phase for one in servers.events if isinstance(one, PhaseChanged)]
    assert phases.count(SweepPhase.CONTEXT) == 4
    levels = result.targets[0].levels
    assert [(one.concurrency, one.depth) for one in levels] == [(1, 0), (2, 0), (1, 512), (2, 512)]
    for level in levels:
        assert (level.context is not None) == bool(level.depth)
        assert CACHE_HITS not in {mark.code for mark in level.validity}
        if level.context is not None:
            assert level.context.ok == level.requests.ok == 2 * level.concurrency
            assert level.context.found_percent == 100.0
            assert level.context.found_from == "answers"
            assert all(512 <= (count or 0) <= 540 for count in level.context.each_prompt_tokens)
            assert all(576 <= (count or 0) <= 600 for count in known(level.each).prompt_tokens)
    text = " ".join(report.sweep_markdown(result).split())
    assert "c2 @ 512" in text
    assert "holds up to 512 tokens of context at least" in text
    assert "--depth 0,512" in repeat_command(result)
    again = SweepResult.model_validate_json(json.dumps(result.to_json()))
    assert again.targets[0].levels[2].context == result.targets[0].levels[2].context
    file = json.loads(exports.to_llama_benchy(result))
    kinds = [(one["context_size"], one["is_context_prefill_phase"]) for one in file["benchmarks"]]
    assert kinds == [(0, False), (0, False), (512, True), (512, False), (512, True), (512, False)]


def ended(cached: int | None) -> RequestTrace:
    trace = RequestTrace("r", 0.0, 0, arrivals=[(1.0, 1)])
    trace.ended = RequestEnded("r", 2.0, EndReason.LENGTH, cached_tokens=cached)
    return trace


LEVEL = Level("a", concurrency_point(1), 100, 10, depth=4096)


@pytest.mark.parametrize(
    ("cached", "grown", "percent", "source"),
    [
        ([4096, 2048], None, 75.0, "answers"),
        ([9999, 4096], None, 100.0, "answers"),
        ([None, 4096], Counters(cache_queries=16000, cache_hits=4096), 50.0, "counters"),
        ([None, None], Counters(), None, None),
    ],
)
def test_hits_come_from_the_answers_or_the_counters(
    cached: list[int | None], grown: Counters | None, percent: float | None, source: str | None
) -> None:
    """The share of the context that was found; unknown where nothing reports it."""
    found = known(context_part(LEVEL, [], [ended(one) for one in cached], grown))
    assert (found.found_percent, found.found_from) == (percent, source)
    assert context_part(replace(LEVEL, depth=0), [], [], None) is None


@pytest.mark.parametrize(
    ("deepest", "last_ms", "words"),
    [
        (20_000, 30.0, "at c = 1, each output token takes 5.0 ms more per 10,000 tokens of context (20.0 ms"),
        (1_000, 20.3, "at c = 1, each output token takes 0.3 ms more per 1,000 tokens of context (20.0 ms"),
        (
            10_000,
            19.0,
            "at c = 1, context adds nothing measurable to an output token (20.0 ms after 0 tokens of ",
        ),
    ],
)
def test_what_context_costs_is_a_line_over_the_depths(deepest: int, last_ms: float, words: str) -> None:
    """Its slope of the time per output token, with both ends; not beyond the depths that were measured."""
    levels = tuple(
        LevelResult(concurrency=1, pp=64, depth=depth, requests=Requests(ok=2), tpot_ms=Latency(mean=tpot_ms))
        for depth, tpot_ms in ((0, 20.0), (deepest, last_ms))
    )
    (sentence,) = depth_sentences(made_sweep(("a", levels)))
    assert sentence.startswith(words)
