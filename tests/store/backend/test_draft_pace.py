"""Speculative decoding is called a loss only where the server was seen with and without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sparktop.model.engine import EngineSample, Histogram, LaneSample
from sparktop.model.snapshot import BackendView

World = Any
RUNNING = 16.0


class Drafting:
    """A server with 16 requests and 20 steps a second, fed second by second."""

    def __init__(self, world: World, make_page: Callable[..., EngineSample]) -> None:
        self.world, self.make_page = world, make_page
        self.at = 1000.0
        self.drafts = self.accepted = self.tokens = self.steps = self.prompt = 0.0

    def play(
        self, seconds: int, *, drafts: bool, tps: float, accepted: float = 0.5, prompt_tps: float = 0.0
    ) -> BackendView:
        """Feed pages for `seconds` seconds; return the last view."""
        for _ in range(seconds):
            self.at += 1
            new = 20 * RUNNING if drafts else 0.0
            self.drafts, self.accepted = self.drafts + new, self.accepted + accepted * new
            self.tokens, self.steps, self.prompt = (
                self.tokens + tps,
                self.steps + 20,
                self.prompt + prompt_tps,
            )
            view: BackendView = self.world.feed(self.make_page(self.at, self.lane()))
        return view

    def lane(self) -> LaneSample:
        """Return the counters of the server's only core now."""
        return LaneSample(
            "0",
            running=RUNNING,
            waiting=0.0,
            prompt_tokens=self.prompt,
            generation_tokens=self.tokens,
            spec_drafts=self.drafts,
            spec_draft_tokens=3 * self.drafts,
            spec_accepted_tokens=self.accepted,
            step_tokens=Histogram((float("inf"),), (self.steps,), 4 * RUNNING * self.steps),
        )


@pytest.fixture
def drafting(world: World, make_page: Callable[..., EngineSample]) -> Drafting:
    return Drafting(world, make_page)


def test_drafts_that_slow_the_server_are_named_with_both_rates(drafting: Drafting) -> None:
    """The finding has 400 tok/s with drafts and 600 without, at the same number of requests."""
    assert drafting.play(60, drafts=True, tps=400.0).spec_verdict is None
    view = drafting.play(60, drafts=False, tps=600.0)
    assert view.spec_verdict == (
        "drafts cost more than they give: 400 tok/s with them, 600 without, at 16 requests"
    )


@pytest.mark.parametrize(("plain", "prompt_tps"), [(420.0, 0.0), (300.0, 0.0), (600.0, 5000.0)])
def test_without_a_clear_difference_nothing_is_said(
    plain: float, prompt_tps: float, drafting: Drafting
) -> None:
    """Not for 5 % more, not for less, and not while prompts hide the difference."""
    drafting.play(60, drafts=True, tps=400.0, prompt_tps=prompt_tps)
    assert drafting.play(60, drafts=False, tps=plain, prompt_tps=prompt_tps).spec_verdict is None


def test_a_server_that_always_drafts_has_no_verdict_on_its_time(drafting: Drafting) -> None:
    """Few accepted tokens may still be worth it; none are not."""
    assert drafting.play(60, drafts=True, tps=330.0, accepted=0.05).spec_verdict is None
    view = drafting.play(80, drafts=True, tps=322.0, accepted=0.01)
    assert view.spec_verdict == "drafts give nothing: 1.01 tokens a step"
