"""Sentences that explain a verdict on a balance."""

from __future__ import annotations

import pytest

from sparktop.analysis.balance.words import too_little


@pytest.mark.parametrize(
    ("mean", "least", "shown"), [(31.7, 32, "31"), (7.98, 8, "7.9"), (2.0, 8, "2.0"), (12.0, 16, "12")]
)
def test_a_load_that_is_too_small_looks_smaller_than_what_is_needed(
    mean: float, least: int, shown: str
) -> None:
    """A load below the needed minimum is never rounded up to it, which would contradict the reason."""
    assert too_little(mean, least) == f"too little load: {shown} requests on average, {least} needed"
