"""Functions that reduce the samples of a metric to one value, also bound to their positions on a page."""

from __future__ import annotations

import math
import random

import pytest

from sparktop.engines.exposition import Family
from sparktop.engines.lanes import (
    Reading,
    bound,
    finished,
    only,
    requests,
    scaled,
    share,
    share_or_none,
    total,
    total_or_none,
)

READINGS: dict[str, Reading] = {
    "total": total,
    "total_or_none": total_or_none,
    "scaled": scaled(0.1),
    "requests": requests,
    "share": share,
    "share_or_none": share_or_none,
    "finished": finished,
    "only": only("pid", "1", None, combine=share),
}
VALUES = (0.0, -0.0, 0.3, 1.00005, 7.0, 1e17, -0.00005, -1.0, math.inf, math.nan)


@pytest.mark.parametrize("name", READINGS)
def test_bound_to_places_a_function_returns_the_same(name: str) -> None:
    """For up to four samples, also with invalid values, the bound function gives the same result."""
    rng, combine = random.Random(name), READINGS[name]  # noqa: S311 - not a secret
    for _ in range(2000):
        reasons = rng.sample(("stop", "length", "abort", "a\x1bb", "ab"), rng.randrange(5))
        labels = [tuple(sorted({"finished_reason": one, "pid": rng.choice("12")}.items())) for one in reasons]
        values = [rng.choice(VALUES) for _ in range(8)]
        indices = rng.sample(range(8), len(labels))
        family: Family = dict(zip(labels, (values[index] for index in indices), strict=True))
        read = bound(combine, dict(zip(labels, indices, strict=True)))
        assert repr(read(values)) == repr(combine(family))
