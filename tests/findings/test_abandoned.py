"""Work for nobody while the server's machine, which lists its connections, does not answer."""

from __future__ import annotations

import pytest

from tests.findings.abandoned import Call, Play, played
from tests.findings.study import seeded

LEAKED = (Call(-50.0, 1e6, -20.0),)
"""One request that never ends, whose client left before the watch began."""


@pytest.mark.parametrize(
    ("silent", "shortest_s", "longest_s"),
    [((60.0, 71.0), 120.0, 150.0), ((60.0, 100.0), 30.0, 60.0)],
    ids=["a missed poll", "more than 30 s"],
)
def test_only_a_long_silence_of_the_machine_ends_what_was_seen(
    silent: tuple[float, float], shortest_s: float, longest_s: float
) -> None:
    """A machine that misses a poll does not restart the time without clients; longer silence does."""
    chance = seeded(1)
    lasted_s = played(Play(LEAKED, silent=silent), chance)[-1].values["window_s"]
    assert isinstance(lasted_s, float)
    assert shortest_s <= lasted_s <= longest_s


def test_other_requests_begin_anew() -> None:
    """When one of two abandoned requests is aborted at 60 s, the other has run alone for at most 90 s."""
    calls = (*LEAKED, LEAKED[0]._replace(ends=60.0, counted=False))
    lasted_s = played(Play(calls), seeded(1))[-1].values["window_s"]
    assert isinstance(lasted_s, float)
    assert 60.0 <= lasted_s <= 90.0
