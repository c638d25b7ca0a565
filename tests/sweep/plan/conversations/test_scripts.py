"""Scripts of conversations follow the distributions of their presets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from statistics import fmean, median

import pytest

from sparktop.sweep.plan.conversations import (
    MOST_CALLS,
    ContextLength,
    ConversationPreset,
    Draw,
    Script,
    find_conversations,
    number_of,
    script,
)
from sparktop.sweep.terms.statistics import quantile

COUNT = 4_000


@dataclass(frozen=True, slots=True)
class _Played:
    """What scripts of a preset add up to if each is played with an endless prefix cache."""

    calls: list[int]
    prompts: list[int]
    new: list[int]
    known: int
    compacted: int


def _scripts(name: str, count: int = COUNT, seed: int = 1) -> list[Script]:
    preset = find_conversations(name)
    return [script(preset, seed, number) for number in range(count)]


def _play(name: str) -> _Played:
    preset = find_conversations(name)
    played = _Played(*([], [], []), 0, 0)
    known = compacted = 0
    for one in _scripts(name):
        context = ContextLength(preset, one)
        for call in one.calls:
            prompt = context.prompt(call)
            assert prompt.fits
            played.prompts.append(prompt.tokens)
            played.new.append(call.new_tokens)
            known += prompt.known_tokens
            context.answered(prompt.tokens, call.output_tokens)
        played.calls.append(len(one.calls))
        compacted += context.compactions > 0
    return _Played(played.calls, played.prompts, played.new, known, compacted)


def _at(values: list[int], share: float) -> float:
    return quantile(sorted(map(float, values)), share)


@pytest.mark.long
def test_coder_has_the_published_shape() -> None:
    """64 calls on average, prompts of 55 k tokens, 96 % of them cacheable, a third compacted."""
    played = _play("coder")
    assert fmean(played.calls) == pytest.approx(64, rel=0.06)
    assert _at(played.calls, 0.5) == pytest.approx(9, abs=1)
    assert _at(played.calls, 0.9) == pytest.approx(160, rel=0.06)
    assert _at(played.prompts, 0.5) == pytest.approx(55_000, rel=0.03)
    assert _at(played.prompts, 0.9) == pytest.approx(87_000, rel=0.02)
    assert fmean(played.new) == pytest.approx(2_000, rel=0.03)
    assert played.known / sum(played.prompts) == pytest.approx(0.960, abs=0.002)
    assert played.compacted / COUNT == pytest.approx(0.32, abs=0.02)


def test_coder_quick_has_the_published_shape() -> None:
    """21 calls, prompts of 16 k tokens, 95.6 % of them cacheable."""
    played = _play("coder-quick")
    assert set(played.calls) == {21}
    assert _at(played.prompts, 0.5) == pytest.approx(16_000, rel=0.03)
    assert _at(played.prompts, 0.9) == pytest.approx(24_000, rel=0.03)
    assert played.known / sum(played.prompts) == pytest.approx(0.956, abs=0.002)


def test_draws_have_their_medians_quantiles_and_limits() -> None:
    """Each random quantity of `coder` has the median, p90 and limit of its preset."""
    preset, random = find_conversations("coder"), Random(3)  # noqa: S311 - load, no secret
    for draw in (preset.own_tokens, preset.new_tokens, preset.output_tokens, preset.human_pause_s):
        values = sorted(draw.value(random) for _ in range(20_000))
        assert median(values) == pytest.approx(draw.median, rel=0.05)
        p90 = min(draw.median * math.exp(1.2816 * draw.sigma), draw.most or math.inf)
        assert quantile(values, 0.9) == pytest.approx(p90, rel=0.06)
        assert values[-1] == draw.most
        assert fmean(values) == pytest.approx(draw.typical, rel=0.04)


def test_equal_seeds_give_equal_scripts() -> None:
    """A script depends on preset, seed and number alone."""
    preset = find_conversations("coder")
    assert script(preset, 7, 12) == script(preset, 7, 12)
    assert script(preset, 7, 12) != script(preset, 8, 12)
    assert script(preset, 7, 12) != script(preset, 7, 13)
    assert number_of(2, 1) != number_of(1, 2)


def test_a_conversation_under_way_resumes_in_the_middle_of_its_life() -> None:
    """It goes on after 25 to 75 % of its calls; one of a single call has no past."""
    shares = [one.resumes_at / len(one.calls) for one in _scripts("coder-quick", 300)]
    assert min(shares) >= 0.2
    assert max(shares) <= 0.75
    assert {one.resumes_at for one in _scripts("rag", 50)} == {0}


def test_an_endless_conversation_is_cut() -> None:
    """A preset that draws millions of calls gets scripts of limited length."""
    endless = ConversationPreset("x", Draw(1), Draw(1), Draw(1_000), 1_000_000, tool_steps=Draw(1_000))
    assert len(script(endless, 0, 0).calls) == MOST_CALLS


def test_each_request_for_documents_has_its_own_context() -> None:
    """A `rag` conversation is one request with a context of about 8,000 tokens of its own."""
    scripts = _scripts("rag", 2_000)
    assert {len(one.calls) for one in scripts} == {1}
    assert median(one.own_tokens for one in scripts) == pytest.approx(8_000, rel=0.05)
