"""The length of drafts: the closed form, and what is said where something is missing."""

from __future__ import annotations

import pytest

from sparktop.model.event import Severity, Sure
from tests.findings.speculation import Draft, Phase, played
from tests.findings.study import seeded

STEEP = Draft(30.0, 6.0, (0.8, 0.6, 0.4, 0.09, 0.05, 0.03, 0.02))


def test_the_last_positions_are_named_with_what_they_add_and_cost() -> None:
    """Of k = 7 against steps without drafts: k = 3 is interpolated, so likely, by the closed form."""
    (finding,) = played(seeded(1), STEEP, (Phase(0), Phase(7)))
    assert finding.line.startswith("drafts of 3 tokens would give about ")
    assert finding.line.endswith(" % more tok/s: positions 4–7 add 0.19 tokens a step and cost 24 ms")
    assert (finding.sure, finding.severity, finding.fix) == (
        Sure.LIKELY,
        Severity.INFO,
        "num_speculative_tokens 3",
    )
    gain = finding.values["gain_percent"]
    assert isinstance(gain, float)
    assert 1 + gain / 100 == pytest.approx(STEEP.rate(3) / STEEP.rate(7), rel=0.01)


def test_a_length_that_was_seen_is_known_and_likely_after_a_restart() -> None:
    """Steps of k = 3 were measured; after a restart other settings may have changed too."""
    for restarts, sure in ((0, Sure.KNOWN), (1, Sure.LIKELY)):
        phases = (Phase(3), Phase(7, restarts=restarts))
        (finding,) = played(seeded(1), STEEP, phases)
        assert ("drafts of 3 tokens" in finding.line, finding.sure) == (True, sure)


def test_without_another_length_nothing_is_said() -> None:
    """What the last positions cost is not known."""
    assert played(seeded(1), STEEP, (Phase(7),)) == []


def test_another_model_is_another_server() -> None:
    """Drafts that give nothing are named at once; good ones are not."""
    (finding,) = played(seeded(1), Draft(50, 2, (0.01, 0.0)), (Phase(2),))
    assert finding.line == "drafts give nothing: 1.01 tokens a step"
    assert played(seeded(1), Draft(50, 1, (0.9, 0.8)), (Phase(0), Phase(2))) == []


def test_while_drafts_rest_the_longest_are_compared_with_none() -> None:
    """Shorter ones, which were measured too, do not hide that drafts cost more than they give."""
    costly = Draft(30.0, 20.0, (0.2, 0.1, 0.05, 0.02))
    for phases in ((Phase(4), Phase(0)), (Phase(2), Phase(4), Phase(0))):
        (finding,) = played(seeded(1), costly, phases)
        assert finding.line.startswith("drafts cost more than they give")
        assert finding.values["draft_length"] == 4
