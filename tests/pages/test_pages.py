"""Every page of the shelf, from a TARGET argument to the written snapshot."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.pages import shelf

pytestmark = pytest.mark.outside


@pytest.mark.parametrize("name", shelf.names())
def test_what_a_page_reports_is_shown(name: str) -> None:
    """The figures, words and requests are those that the page's file states."""
    page = shelf.read(shelf.FOLDER / f"{name}.toml")
    watched = shelf.watch(name)
    found = shelf.faults(page, watched)
    assert not found, "\n".join([*found, "", watched.text])


def test_a_wrong_expectation_fails() -> None:
    """A figure, a word, a request and a server that are not as expected are each reported."""
    page = shelf.read(shelf.FOLDER / "vllm-0.32.toml")
    watched = shelf.Watched(
        {
            "backends": [{"url": "http://h:1", "generation_tps": 100.0, "running": None}],
            "routers": [],
            "events": [],
        },
        "busy",
        ("/metrics?x=1", "/metrics"),
        "http://h:1",
    )
    wrong = {
        "backend": {"generation_tps": 103, "running": 0, "model": "m"},
        "router": {"kind": "x"},
        "backends": 2,
        "text": ["idle"],
        "not_text": ["bus"],
        "events": ["restarted"],
        "never_asked": ["/metrics"],
        "asked_at_most": {"/metrics": 1},
    }
    page = replace(page, expected=wrong)
    assert len(shelf.faults(page, watched)) == 3 + 7
    right = {
        "backend": {"generation_tps": 101, "running": "?"},
        "text": ["bus"],
        "asked_at_most": {"/metrics": 2},
    }
    assert shelf.faults(replace(page, expected=right), watched) == []


@pytest.mark.parametrize(
    ("text", "seconds", "value"),
    [("3", 9.0, "3"), ("100+2.5/s", 4.0, 110.0), ("0+60/5s", 9.9, 60.0), ("1 @10s 2+1/s", 12.0, 14.0)],
)
def test_a_counter_moves_by_known_steps(text: str, seconds: float, value: float | str) -> None:
    """A value stays, rises steadily, rises in steps or changes at a time."""
    assert shelf.value_at(text, seconds) == value


def test_a_histogram_has_its_buckets_sum_and_count() -> None:
    """A line of a histogram becomes its cumulative buckets, its sum and its count."""
    line = 'x:ttft{m="a"} histogram 0.1 1: 0+2/s of 0.05 0.5'
    assert shelf.rendered(line, 2.0, {}).splitlines() == [
        'x:ttft_bucket{m="a",le="0.1"} 2.0',
        'x:ttft_bucket{m="a",le="1"} 4.0',
        'x:ttft_bucket{m="a",le="+Inf"} 4.0',
        'x:ttft_sum{m="a"} 1.1',
        'x:ttft_count{m="a"} 4.0',
    ]
