"""What a search found, in a sentence."""

from __future__ import annotations

import pytest

from sparktop.sweep.plan.slo import plain_words
from sparktop.sweep.result.results import Holds, LevelResult, Rate, SloResult
from sparktop.sweep.view.words import slo_sentences
from tests.sweep.made_results import made_sweep


def said(holds: Holds, *conditions: str) -> str:
    level = LevelResult(concurrency=64, output_tps=Rate(mean=1586.0))
    slo = SloResult(conditions=conditions or ("ttft_p90_ms ≤ 2000",), holds_to={"a": holds})
    (sentence,) = slo_sentences(made_sweep(("a", [level])).model_copy(update={"slo": slo}))
    return sentence.removeprefix("a: ")


@pytest.mark.parametrize(
    ("concurrency", "interval", "words"),
    [
        (6, (6, 8), "holds to c = 6, surely not beyond 8 (more runs narrow this)"),
        (6, (6, None), "holds to c = 6 at least: no level failed for sure"),
        (
            None,
            (None, 3),
            "holds at no concurrency for sure, and surely not beyond c = 3 (more runs narrow this)",
        ),
    ],
)
def test_an_upper_end_is_said_with_its_interval(
    concurrency: int | None, interval: tuple[int | None, int | None], words: str
) -> None:
    """From a limit that is known exactly to one that is not known at all."""
    assert said(Holds(concurrency=concurrency, interval=interval)) == f"first token p90 ≤ 2 s {words}"


def test_a_range_is_said_with_both_ends() -> None:
    """Each end has what it may be, where that is more."""
    found = Holds(concurrency=40, interval=(40, 44), from_concurrency=24, from_interval=(21, 24))
    assert said(found, "output_tps ≥ 600", "ttft_p90_ms ≤ 2000") == (
        "output ≥ 600 tok/s and first token p90 ≤ 2 s hold from c = 24 (perhaps from 21) to 40 "
        "(perhaps to 44)"
    )
    open_ended = Holds(concurrency=64, interval=(64, None), from_concurrency=24, from_interval=(24, 24))
    assert said(open_ended, "output_tps ≥ 600").endswith("holds from c = 24 to 64, the largest tried")


def test_a_throughput_out_of_reach_is_said_with_the_most_measured() -> None:
    """The reader sees how far away it is."""
    none = Holds(concurrency=None, interval=(None, None), from_concurrency=None, from_interval=(129, None))
    assert said(none, "output_tps ≥ 2000") == (
        "output ≥ 2,000 tok/s holds at no concurrency for sure: it takes c = 129 at least; "
        "most output: 1,586 tok/s at c = 64"
    )


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("ttft_p90_ms ≤ 2000", "first token p90 ≤ 2 s"),
        ("stream_tps ≥ 15", "≥ 15 tok/s each"),
        ("anything else", "anything else"),
    ],
)
def test_a_condition_has_plain_words(condition: str, words: str) -> None:
    """The screen has no key of the JSON."""
    assert plain_words(condition) == words
