"""The regression of step times finds the coefficients that the polls were made with."""

from __future__ import annotations

import pytest

from sparktop.analysis.limited_by.step_cost import step_cost
from tests.analysis.limited_by.looks import Served


def test_the_three_coefficients_are_found() -> None:
    """A step of 30 ms, 2 ms for each request, 0.1 ms for each prompt token."""
    made = Served(swing=16, fixed_s=0.03, per_token_s=0.002, per_prompt_s=0.0001, prompt_tokens=2000.0)
    cost = step_cost(made.looks())
    assert cost is not None
    assert cost.fixed_s == pytest.approx(0.03, rel=0.02)
    assert cost.per_token_s == pytest.approx(0.002, rel=0.02)
    assert cost.per_prompt_s == pytest.approx(0.0001, rel=0.02)
    assert cost.prompt_share == pytest.approx(0.2, rel=0.05)


def test_shares_add_up() -> None:
    """Whatever the regression leaves unexplained, the shares are of the time that it explains."""
    cost = step_cost(Served(swing=4).looks())
    assert cost is not None
    assert cost.fixed_share + cost.token_share + cost.prompt_share == pytest.approx(1.0, abs=0.01)


def test_a_batch_that_never_varies_is_known_to_be_so() -> None:
    """Fixed part and part per request cannot be separated, which `batch_spread` shows."""
    cost = step_cost(Served().looks())
    assert cost is not None
    assert cost.batch_spread == pytest.approx(0.0, abs=1e-9)
    assert cost.decode_share == pytest.approx(0.99, abs=0.02)


def test_without_steps_they_are_computed_from_tokens() -> None:
    """Each running request generates one token in a step, unless the server speculates."""
    looks = [look._replace(steps=None) for look in Served(swing=16).looks()]
    cost = step_cost(looks)
    assert cost is not None
    assert cost.fixed_s == pytest.approx(0.05, rel=0.05)
    assert step_cost(looks, speculates=True) is None


def test_without_tokens_there_is_no_regression() -> None:
    """Steps alone do not tell prompts from decoding."""
    assert step_cost([look._replace(generated=None) for look in Served().looks()]) is None
