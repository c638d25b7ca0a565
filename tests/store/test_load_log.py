"""What is kept of a backend's load, and what is read from it: lives, lengths, failures, arrivals."""

from __future__ import annotations

import math

import pytest

from sparktop.model.engine import Histogram, LaneSample
from sparktop.store.load_log import LoadLog, median_life_s
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


def logged(*pages: LaneSample) -> LoadLog:
    log = LoadLog()
    for index, one in enumerate(pages):
        log.note(float(index), (one,), None, continues=index > 0)
    return log


@pytest.mark.parametrize(
    ("failed", "aborted", "errors"), [(0.0, 1.0, 0.0), (0.0, 4.0, 4.0), (3.0, 1.0, 3.0), (None, 0.0, 0.0)]
)
def test_few_aborts_are_no_errors(failed: float | None, aborted: float, errors: float) -> None:
    """One client in a hundred hangs up anywhere; 4 % are a router that gives up."""
    assert logged(page(0), page(100, failed=failed, aborted=aborted)).errors_since(0.0) == errors


def test_a_server_that_knows_no_reasons_tells_no_errors() -> None:
    """SGLang counts requests without saying how they ended: errors are unknown, not 0."""
    one, other = (LaneSample("0", finished={"unknown": float(count)}) for count in (5, 9))
    log = logged(one, other)
    assert log.errors_since(0.0) is None
    assert log.counts_since(0.0) == {"finished": 4}


@pytest.mark.parametrize(
    ("loads", "ends", "arrived"),
    [
        ((40.0, 10.0), (0.0, 50.0), 20.0),
        ((40.0, 1.0), (0.0, 5.0), 0.0),
        ((0.0, 96.0, 96.0, 0.0), (0.0, 0.0, 8.0, 8.0), 104.0),
        ((0.0, 32.0, 32.0, 4.0), (0.0, 0.0, 66.0, 70.0), 98.0),
    ],
)
def test_requests_whose_clients_hung_up_did_arrive(
    loads: tuple[float, ...], ends: tuple[float, ...], arrived: float
) -> None:
    """VLLM does not count them: those in flight get fewer by more than have ended."""
    log = logged(*(page(ended, running=load) for load, ended in zip(loads, ends, strict=True)))
    assert log.arrivals_since(0.0) == arrived
    came = log.track("", 0.0, slots=None, errors=None).arrived
    assert came is not None
    assert came[-1] - came[0] == arrived


def test_ends_that_are_counted_elsewhere_tell_of_no_client_that_left() -> None:
    """SGLang counts ends without reasons, at another moment than what runs: a fall may be late."""
    pages = [(0.0, 16.0), (16.0, 16.0), (16.0, 0.0), (16.0, 16.0)]
    log = logged(*(LaneSample("0", running=load, finished={"unknown": ended}) for ended, load in pages))
    assert (log.arrivals_since(0.0), log.vanished_since(0.0)) == (16.0, 0.0)


def test_the_median_life_is_of_all_backends_together() -> None:
    """Three quarters lived 3.6 s, the others 12 s: from merged buckets it lies in that of the many."""
    quick = logged(page(life=lives(0, 3.6)), page(life=lives(60, 3.6)))
    slow = logged(page(life=lives(0, 12.0)), page(life=lives(20, 12.0)))
    assert median_life_s([quick, slow], 2.0) == pytest.approx(2.5 + 2.5 * 40 / 60)
    assert median_life_s([quick], 2.0) == pytest.approx(3.6)
    assert median_life_s([logged(page())], 2.0) is None
