"""A window does not flip between nine and ten seconds because of jitter."""

from __future__ import annotations

import pytest

from sparktop.rates.tally import Tally, Window


@pytest.mark.parametrize("early_s", [0.0, 0.003, 0.2])
def test_a_sample_just_before_the_window_opens_it(early_s: float) -> None:
    """With a first sample some milliseconds older than 10 s, the rate still spans all ten steps."""
    window = Window()
    for second in range(11):
        at = second - (early_s if second == 0 else 0.0)
        window.append(Tally(at, {"generation_tokens": 100.0 * second}, {}), 10.0)
    assert window.rate("generation_tokens", 10.0) == pytest.approx(1000.0 / (10.0 + early_s))


def test_a_sample_far_before_the_window_does_not() -> None:
    """A sample a whole step too old is outside."""
    window = Window()
    for second in range(12):
        window.append(Tally(float(second), {"generation_tokens": 100.0 * second}, {}), 10.0)
    assert window.counted("generation_tokens", 10.0) == (1000.0, 10.0)
