"""A short form of the study of each rule."""

from __future__ import annotations

import re

import pytest

from sparktop.model.explained import FINDINGS
from tests.findings.study import Family, counted, families, seeded

RUNS = 6


@pytest.mark.long
@pytest.mark.parametrize("family", families(), ids=lambda one: f"{one.kind}/{one.name}")
def test_runs_get_the_verdict_that_they_deserve(family: Family) -> None:
    """Few runs of each family keep the limits of the study."""
    assert counted(family, RUNS).is_good


@pytest.mark.long
def test_the_advice_of_a_finding_is_that_of_the_words() -> None:
    """What a finding says to do stands among the words of its kind, apart from what only the rule knows."""
    played = {(one.kind, one.fix) for family in families() for one in family.run(seeded(family.name))}
    advised = [(kind, fix) for kind, fix in sorted(played, key=str) if fix is not None]
    assert {kind for kind, _ in advised} == FINDINGS.keys() - {"yardsticks"}
    for kind, fix in advised:
        words = FINDINGS[kind]
        known = [
            re.sub(r"\\{\w+\\}", ".+", re.escape(one)) for one in (words.remedy, *words.remedies.values())
        ]
        assert any(re.fullmatch(one, fix) for one in known), (kind, fix)
