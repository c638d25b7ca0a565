"""What is kept of a backend's load, and what is read from it: lives, lengths, failures, arrivals."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.model.engine import Histogram, LaneSample
from sparktop.store.backend import MOST_LANES, LaneLogs, LaneRate
from sparktop.store.load_log import LoadLog, length_variation, median_life_s
from tests.store.fed_traces import lives

BOUNDS = (1.0, 1000.0, math.inf)


def page(
    ended: float = 0.0,
    *,
    running: float | None = 1.0,
    failed: float | None = 0.0,
    aborted: float = 0.0,
    tokens: float = 0.0,
    life: Histogram | None = None,
) -> LaneSample:
    """Return a lane that finished `ended` requests of `tokens` tokens in all."""
    finished = {"length": ended - (failed or 0.0) - aborted, "abort": aborted}
    if failed is not None:
        finished["error"] = failed
    answers = Histogram(BOUNDS, (0.0, ended, ended), tokens)
    return LaneSample("0", running=running, finished=finished, e2e=life, answer_tokens=answers)


def logged(*pages: LaneSample, step_s: float = 1.0) -> LoadLog:
    log = LoadLog()
    for index, one in enumerate(pages):
        log.note(index * step_s, (one,), None, continues=index > 0)
    return log


def test_a_restart_counts_nothing_and_loses_nothing() -> None:
    """A new process begins at 0: its first page adds nothing, and what was counted before stays."""
    log = logged(page(100), page(103))
    log.note(2.0, (page(1),), None, continues=False)
    log.note(3.0, (page(5),), None, continues=True)
    assert log.counted(0.0)["finished"] == 3 + 4


@pytest.mark.parametrize(
    ("failed", "aborted", "errors"), [(0.0, 1.0, 0.0), (0.0, 4.0, 4.0), (3.0, 1.0, 3.0), (None, 0.0, 0.0)]
)
def test_few_aborts_are_no_errors(failed: float | None, aborted: float, errors: float) -> None:
    """One client in a hundred hangs up anywhere; 4 % are a router that gives up."""
    assert logged(page(0), page(100, failed=failed, aborted=aborted)).errors(0.0) == errors


def test_a_server_that_knows_no_reasons_tells_no_errors() -> None:
    """SGLang counts requests without saying how they ended: errors are unknown, not 0."""
    one, other = (LaneSample("0", finished={"unknown": float(count)}) for count in (5, 9))
    log = logged(one, other)
    assert log.errors(0.0) is None
    assert log.counted(0.0) == {"finished": 4}


def test_a_look_that_failed_is_no_look() -> None:
    """A gap is drawn, and left out of the samples that are judged."""
    log = logged(page(), page())
    log.gap(2.0)
    log.note(3.0, (page(),), 50.0, continues=True)
    assert [value for _, value in log.history().running] == [1, 1, None, 1]
    track = log.track("b", -math.inf, slots=None, errors=None)
    assert (track.times_s, track.running, track.waiting) == ([0.0, 1.0, 3.0], [1, 1, 1], None)
    assert track.generation_tps is not None
    assert track.generation_tps[-1] == 50


def test_a_rate_of_finished_requests_is_drawn_and_never_judged() -> None:
    """Where tokens are counted at the end of a request, the rate says nothing of single steps."""
    log = LoadLog()
    for at in (0.0, 1.0):
        log.note(at, (page(),), 50.0, continues=at > 0, live=False)
    assert log.history().generation_tps.last == 50.0
    assert log.track("b", -math.inf, slots=None, errors=None).generation_tps is None


def test_the_median_life_is_of_all_backends_together() -> None:
    """Three quarters lived 3.6 s, the others 12 s: from merged buckets it lies in that of the many."""
    quick = logged(page(life=lives(0, 3.6)), page(life=lives(60, 3.6)))
    slow = logged(page(life=lives(0, 12.0)), page(life=lives(20, 12.0)))
    assert median_life_s([quick, slow], 2.0) == pytest.approx(2.5 + 2.5 * 40 / 60)
    assert median_life_s([quick], 2.0) == pytest.approx(3.6)
    assert median_life_s([logged(page())], 2.0) is None


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(10, 400), min_size=40, max_size=120), st.integers(1, 3), st.floats(0.5, 20.0))
def test_lengths_are_told_apart_without_buckets(lengths: list[int], at_once: int, scale: float) -> None:
    """Whatever the lengths, the spread is 0 if all are equal, never negative and independent of the unit."""

    def log_of(values: list[float]) -> LoadLog:
        pages, ended, tokens = [page()], 0, 0.0
        for start in range(0, len(values), at_once):
            ended += len(values[start : start + at_once])
            tokens += sum(values[start : start + at_once])
            pages.append(page(ended, tokens=tokens))
        return logged(*pages, step_s=3.0)

    same = length_variation([log_of([64.0] * len(lengths))], 0.0)
    assert same == pytest.approx(0.0, abs=1e-9)
    found = length_variation([log_of([float(one) for one in lengths])], 0.0)
    scaled = length_variation([log_of([scale * one for one in lengths])], 0.0)
    assert found is not None
    assert found >= 0
    assert scaled == pytest.approx(found, rel=1e-6, abs=1e-6)
    if at_once == 1:
        assert found == pytest.approx(
            statistics.stdev(lengths) / statistics.mean(lengths), rel=1e-6, abs=1e-6
        )


def test_the_rate_of_a_lane_spans_a_second() -> None:
    """At 4 Hz it is over the last second, not over a quarter; after a gap and a restart it begins anew."""
    rate = LaneRate()
    told = [rate.note(index / 4, 25.0 * index, 2.5) for index in range(9)]
    assert told[:4] == [None] * 4
    assert told[4:] == [pytest.approx(100.0)] * 5
    assert rate.note(10.0, 5000.0, 2.5) is None
    assert rate.note(10.5, 3.0, 2.5) is None
    assert rate.note(11.5, 53.0, 2.5) == pytest.approx(50.0)
    assert rate.note(12.0, None, 2.5) is None


def test_lanes_are_kept_from_the_second_on_and_not_for_ever_more() -> None:
    """A server of one lane has none, one of too many neither; a lane that goes leaves a gap."""
    logs = LaneLogs()
    many = [LaneSample(str(index), running=1.0) for index in range(MOST_LANES + 1)]
    assert logs.note(1.0, many[:1], continues=False, interval_s=1.0) == {}
    assert set(logs.note(2.0, many[:2], continues=True, interval_s=1.0)) == {"0", "1"}
    logs.note(3.0, many[1:3], continues=True, interval_s=1.0)
    assert [value for _, value in logs.logs["0"].history().running] == [1, None]
    assert logs.note(4.0, many, continues=True, interval_s=1.0) == {}
    assert logs.logs == {}
