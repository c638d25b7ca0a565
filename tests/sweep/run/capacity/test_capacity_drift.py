"""A server that changes while a search measures it is said to, and nothing is called certain then."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from sparktop.model.load import LoadKind
from sparktop.sweep.plan.capacity import parse_conditions
from sparktop.sweep.plan.plan import Capacity
from sparktop.sweep.run.capacity import JudgedRun, capacity_answer, capacity_result, drift_of
from sparktop.sweep.run.judgement import Judged, judge
from sparktop.sweep.run.search import CapacitySearch
from sparktop.sweep.view.capacity import answer_words
from tests.sweep.run.capacity.test_capacity_judgement import request

CAPACITY = Capacity(LoadKind.CONCURRENCY, parse_conditions("stream_tps=12", LoadKind.CONCURRENCY), most=64)
BEGAN = datetime(2026, 11, 28, 7, 6, tzinfo=UTC)


def judged(*rates: float) -> Judged:
    """Return the judgement of requests that generate at these rates."""
    traces = []
    for index, rate in enumerate(rates):
        made = request(index, 0.1)
        made.arrivals = [(index + 0.1, 1), (index + 0.1 + 10 / rate, 10)]
        traces.append(made)
    return judge(CAPACITY, traces, max_error_share=0.01)


def runs(first: float, last: float, count: int = 30) -> list[JudgedRun]:
    """Return two runs of a level, three minutes apart, whose requests have these rates."""
    return [
        (judged(*[first] * count), BEGAN),
        (judged(*[last] * count), BEGAN + timedelta(minutes=3)),
    ]


def test_a_server_that_got_slower_is_named_with_its_figures() -> None:
    """7 requests at once had 17.7 tok/s each at 07:06 and 8.2 at 07:09."""
    search = CapacitySearch(CAPACITY)
    search.add(7.0, judged(*[17.7] * 30, *[8.2] * 30))
    drift = drift_of({7.0: runs(17.7, 8.2)})
    assert drift is not None
    answer = capacity_answer(search, {}, complete=True, drift=drift)
    found = capacity_result(CAPACITY, {"a": answer})
    words = "; ".join(answer_words(found, answer))
    assert "the server got slower while it was measured: with 7 " in words
    assert ", p10 stream 17.7 tok/s at" in words
    assert ", 8.2 tok/s at" in words
    assert "95 % sure" not in words
    assert not any(one.certain for one in answer.probes)
    assert answer.interval == (None, None)


@pytest.mark.parametrize(("first", "last"), [(17.7, 17.0), (8.0, 8.2), (17.7, 12.1)])
def test_a_steady_server_has_no_drift(first: float, last: float) -> None:
    """What meets the condition both times, or misses it both times, changes no answer."""
    assert drift_of({7.0: runs(first, last)}) is None
    assert drift_of({7.0: runs(17.7, 8.2, count=3)}) is None
    assert drift_of({7.0: runs(17.7, 8.2)[:1]}) is None


def test_a_level_that_misses_its_share_is_not_certain_to_hold() -> None:
    """88 % of the requests met it where 90 % must: its neighbours may say that it holds, not for certain."""
    search = CapacitySearch(CAPACITY)
    for value, met in ((1.0, 100), (2.0, 100), (4.0, 88), (5.0, 100), (6.0, 100), (8.0, 0)):
        search.add(value, judged(*[14.0] * met, *[11.5] * (100 - met)))
    answer = capacity_answer(search, {}, complete=True)
    probes = {one.value: one for one in answer.probes}
    assert probes[1.0].certain
    assert not (probes[4.0].holds and probes[4.0].certain)
