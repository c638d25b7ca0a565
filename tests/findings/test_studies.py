"""A short form of the study of each rule."""

from __future__ import annotations

import pytest

from tests.findings.study import Family, counted, families

RUNS = 10


@pytest.mark.long
@pytest.mark.parametrize("family", families(), ids=lambda one: f"{one.kind}/{one.name}")
def test_runs_get_the_verdict_that_they_deserve(family: Family) -> None:
    """Few runs of each family keep the limits of the study."""
    assert counted(family, RUNS).is_good
