"""Targets with the same job and instance, whose pages have times of their own."""

from __future__ import annotations

from sparktop.engines.tables import RUNNING
from sparktop.sources.prometheus.client import Series
from sparktop.sources.prometheus.figures import merged, pages, scraped_apart
from sparktop.sources.prometheus.found import Key

GAUGE = next(iter(RUNNING))
HERE = {"job": "vllm", "instance": "h:8000"}
KEY = Key("vllm", "h:8000")


def gauge(model: str, *samples: tuple[float, str]) -> Series:
    """Return the gauge of running requests of a model."""
    return Series({"__name__": GAUGE, **HERE, "model_name": model}, samples)


def test_two_targets_with_one_instance_are_one_page() -> None:
    """Each page has the newest line of both models; the first time, of one alone, is none."""
    both = [
        gauge("a", (15.0, "1"), (30.0, "2"), (45.0, "3")),
        gauge("b", (19.0, "10"), (34.0, "20")),
        Series({"__name__": "process_cpu_seconds_total", **HERE}, [(15.0, "1"), (19.0, "7"), (30.0, "2")]),
    ]
    found, mixed = pages(both, {})
    assert mixed == {KEY}
    values = {
        at: [line.rpartition(" ")[2] for line in page.decode().splitlines() if line.startswith(GAUGE)]
        for at, page in found[KEY].items()
    }
    assert values == {19.0: ["1", "10"], 30.0: ["2", "10"], 34.0: ["2", "20"], 45.0: ["3", "20"]}


def test_a_target_that_ends_is_on_no_later_page() -> None:
    """Its newest lines stand for it for one scrape and three quarters."""
    lines = {at: [str(at)] for at in (0.0, 4.0, 15.0, 19.0, 30.0, 45.0, 60.0)}
    made = dict(merged(lines, [{0.0, 15.0, 30.0, 45.0, 60.0}, {4.0, 19.0}]))
    assert made[30.0] == ["30.0", "19.0"]
    assert made[45.0] == ["45.0", "19.0"]
    assert made[60.0] == ["60.0"]


def test_a_restart_with_another_model_is_one_target() -> None:
    """One gauge ends before the other begins, and a label that comes later has the times of the others."""
    assert len(scraped_apart([frozenset({0.0, 15.0}), frozenset({45.0, 60.0})])) == 1
    assert len(scraped_apart([frozenset({0.0, 15.0, 30.0}), frozenset({30.0, 45.0})])) == 1
    found, mixed = pages([gauge("a", (0.0, "1"), (15.0, "2")), gauge("b", (45.0, "3"))], {})
    assert not mixed
    assert list(found[KEY]) == [0.0, 15.0, 45.0]
