"""The regression of step times recovers the coefficients that the polls were made with."""

from __future__ import annotations

import pytest

from sparktop.analysis.limited_by import step_cost
from tests.analysis.limited_by.looks import Served


def test_the_three_coefficients_are_found() -> None:
    """The coefficients are found: 30 ms a step, 2 ms for each request, 0.1 ms for each prompt token."""
    made = Served(swing=16, fixed_s=0.03, per_token_s=0.002, per_prompt_s=0.0001, prompt_tokens=2000.0)
    cost = step_cost(made.looks())
    assert cost is not None
    assert cost.fixed_s == pytest.approx(0.03, rel=0.02)
    assert cost.per_token_s == pytest.approx(0.002, rel=0.02)
    assert cost.per_prompt_s == pytest.approx(0.0001, rel=0.02)
    assert cost.prompt_share == pytest.approx(0.2, rel=0.05)


def test_shares_add_up() -> None:
    """The shares add up to 1: they are parts of the time that the regression explains."""
    cost = step_cost(Served(swing=4).looks())
    assert cost is not None
    assert cost.fixed_share + cost.token_share + cost.prompt_share == pytest.approx(1.0, abs=0.01)


def test_a_batch_that_never_varies_is_known_to_be_so() -> None:
    """A batch that never varies has a `batch_spread` of 0: fixed and per-request cost cannot be separated."""
    cost = step_cost(Served().looks())
    assert cost is not None
    assert cost.batch_spread == pytest.approx(0.0, abs=1e-9)
    assert cost.decode_share == pytest.approx(0.99, abs=0.02)


def test_without_steps_they_are_computed_from_tokens() -> None:
    """Unreported steps are computed from tokens, one for each running request; not if it speculates."""
    looks = [look._replace(steps=None) for look in Served(swing=16).looks()]
    cost = step_cost(looks)
    assert cost is not None
    assert cost.fixed_s == pytest.approx(0.05, rel=0.05)
    assert step_cost(looks, speculates=True) is None


def test_without_tokens_there_is_no_regression() -> None:
    """Without token counts there is no regression: steps alone do not separate prefill from decoding."""
    assert step_cost([look._replace(generated=None) for look in Served().looks()]) is None
