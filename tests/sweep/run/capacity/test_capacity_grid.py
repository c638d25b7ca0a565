"""The loads that a capacity search chooses from, and how it counts requests that are not independent."""

from __future__ import annotations

import pytest

from sparktop.model.load import LoadKind
from sparktop.sweep.plan.capacity import parse_conditions
from sparktop.sweep.plan.plan import Capacity
from sparktop.sweep.run.judgement import Judged, Scatter, Shares, Verdict
from sparktop.sweep.run.search import CapacitySearch, seen_of

CONDITIONS = parse_conditions("ttft_p90_ms=2000", LoadKind.RATE)


def test_requests_that_miss_together_count_as_fewer_at_all_levels() -> None:
    """A level without a miss cannot show it: the others do."""
    alone = {4.0: Shares(CONDITIONS[0], 0.9, 60, 60, 0.9, 1.0)}
    _, (free,) = seen_of(alone)
    bunched = Shares(CONDITIONS[0], 0.9, 40, 60, 0.5, 0.8, scatter=Scatter(120.0, 12.0))
    _, (first, second) = seen_of({**alone, 8.0: bunched})
    assert first.count < free.count / 3
    assert first.count == second.count
    assert second.met == pytest.approx(second.count * 40 / 60)


def test_an_unstable_rate_says_where_the_border_is() -> None:
    """Its share is evidence too: the next rate is well below one of which nearly all requests were late."""
    search = CapacitySearch(Capacity(LoadKind.RATE, CONDITIONS, most=64.0), 1.0)
    for value, met, trouble in ((1.0, 100, ""), (2.0, 100, ""), (4.0, 20, "unstable")):
        shares = (Shares(CONDITIONS[0], 0.95, met, 100, 0.0, 1.0),)
        search.add(value, Judged(not trouble, Verdict.UNSURE, shares, 100, 1.0, trouble))
    probe = search.next()
    assert probe is not None
    assert 2.0 < probe.point.value < 3.6
