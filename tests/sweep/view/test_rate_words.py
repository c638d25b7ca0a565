"""The sentence on a sweep over rates: up to which rate a target keeps up, and how it fails beyond."""

from __future__ import annotations

from sparktop.model.load import LoadKind
from sparktop.sweep.result.results import LevelResult, OpenLoopResult, Requests, TargetResult, Validity
from sparktop.sweep.terms.definitions import CUT_SHORT
from sparktop.sweep.view.words import rate_sentence


def level(
    per_s: float, found: OpenLoopResult | None = None, *, ok: int = 100, failed: int = 0
) -> LevelResult:
    """Return a level at `per_s`, with which the server keeps up unless `found` says otherwise."""
    return LevelResult(
        concurrency=512,
        load=LoadKind.RATE,
        value=per_s,
        requests=Requests(ok=ok, failed=failed),
        open_loop=found or OpenLoopResult(),
    )


def words(*levels: LevelResult) -> str | None:
    return rate_sentence(TargetResult(name="solo", url="http://127.0.0.1:1", levels=levels))


def test_the_sentence_names_the_highest_rate_below_the_first_that_failed() -> None:
    """A rate beyond a failed one does not count, whatever it shows."""
    growing = level(2.0, OpenLoopResult(unstable=True, ttft_growth=0.43))
    found = words(level(1.0), growing, level(4.0))
    assert found == "keeps up with 1 /s, not with 2 /s: TTFT grows 0.43 s per s"
    assert words(growing) == "does not keep up with 2 /s: TTFT grows 0.43 s per s"
    assert words(level(1.0), level(2.0)) == "keeps up with 2 /s, the highest rate measured"


def test_a_server_that_refuses_requests_does_not_keep_up() -> None:
    """One that answers 503 to many has short queues, and no growth."""
    assert words(level(1.0), level(2.0, ok=60, failed=40)) == (
        "keeps up with 1 /s, not with 2 /s: 40 of 100 requests failed"
    )
    assert words(level(2.0, OpenLoopResult(overloaded=True, in_flight_limit=512))) == (
        "does not keep up with 2 /s: 512 requests in flight, the limit of the client"
    )


def test_a_level_that_was_cut_short_is_no_limit() -> None:
    """A server that died, or a sweep that was stopped, shows no rate that the server cannot take."""
    mark = Validity(code=CUT_SHORT, message="the sweep ended within this level")
    died = level(2.0, ok=1, failed=8).model_copy(update={"validity": (mark,)})
    assert words(level(1.0), died) == "keeps up with 1 /s; 2 /s was cut short: 8 of 9 requests failed"
    assert words(died) == "2 /s was cut short: 8 of 9 requests failed"
    stopped = level(2.0, ok=9).model_copy(update={"validity": (mark,)})
    assert words(level(0.5), level(1.0), stopped) == (
        "keeps up with 1 /s, the highest rate measured; 2 /s was cut short"
    )
