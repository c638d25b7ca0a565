"""What independent engines could reach at best, and which targets do more than that."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from sparktop.sweep.compare.compare import compare, engines_sentence, independent_engines
from sparktop.sweep.compare.series import Series, load_reference
from tests.sweep.made_results import made_series

SOLO = {1: (50.0, 50.5), 2: (80.0, 80.5), 4: (110.0, 110.5)}


def routed(engines: tuple[str, ...], by_concurrency: Mapping[int, tuple[float, ...]]) -> Series:
    return replace(made_series("proxy", by_concurrency), engines=engines, source="one.json")


def alone(name: str, by_concurrency: Mapping[int, tuple[float, ...]], source: str = "one.json") -> Series:
    return replace(made_series(name, by_concurrency), engines=(name,), source=source)


def test_the_published_topologies_answer_their_own_question() -> None:
    """At c = 8: 2 × solo(c4) = 215.8, shuffle 177.5 (82 %), and TP=2's 231.0 is beyond any routing of two."""
    shuffle, least_busy = compare(load_reference("spark-topologies-2026-03").series).independent_engines
    assert (shuffle.routed, shuffle.alone, shuffle.metric) == (
        "simple-shuffle",
        ("solo", "solo"),
        "decode_tps",
    )
    level = next(one for one in shuffle.levels if one.concurrency == 8)
    assert (level.each, level.routed) == (4, 177.5)
    assert level.bound == pytest.approx(215.8)
    assert level.percent == pytest.approx(82.25, abs=0.01)
    assert [one.concurrency for one in shuffle.levels if one.beyond == ("cluster-tp2",)] == [8, 16, 32]
    assert least_busy.levels[-1].percent == pytest.approx(100 * 338.4 / 637.4)
    assert "2 independent engines at best = 2 × solo at c/2" in engines_sentence([shuffle, least_busy])


def test_a_measured_router_is_held_against_its_own_engines() -> None:
    """Each engine's own curve where it was measured, another one's where it was not."""
    second = {level: tuple(value * 2 for value in values) for level, values in SOLO.items()}
    proxy = routed(("spark-a", "spark-b"), {2: (90.0, 91.0), 4: (150.0, 151.0), 5: (1.0, 1.0)})
    (one,) = independent_engines([alone("spark-a", SOLO), proxy])
    assert one.alone == ("spark-a", "spark-a")
    assert [(level.concurrency, level.bound) for level in one.levels] == [(2, 100.5), (4, 160.5)]
    (both,) = independent_engines([alone("spark-a", SOLO), alone("spark-b", second), proxy])
    assert both.alone == ("spark-a", "spark-b")
    assert both.levels[0].bound == pytest.approx(50.25 * 3)


def test_without_an_engine_alone_there_is_no_bound() -> None:
    """Neither for a router alone, nor beside another model's engine, nor for an engine asked directly."""
    proxy = routed(("spark-a", "spark-b"), {2: (90.0, 91.0)})
    other = replace(alone("spark-a", SOLO), model="another")
    assert not list(independent_engines([proxy]))
    assert not list(independent_engines([proxy, other]))
    assert not list(independent_engines([alone("spark-a", SOLO), alone("spark-b", SOLO)]))


def test_only_a_shown_difference_is_beyond_the_bound() -> None:
    """Runs that scatter, and single runs, prove nothing; 2 × 50.25 is passed by 130 with close runs."""
    proxy = routed(("spark-a", "spark-b"), {2: (90.0, 91.0)})
    for values, beyond in (((130.0, 130.5), ("tp2",)), ((60.0, 260.0), ()), ((130.0,), ())):
        cluster = replace(made_series("tp2", {2: values}), engines=("tp2",), source="one.json")
        (one,) = independent_engines([alone("spark-a", SOLO), proxy, cluster])
        assert one.levels[0].beyond == beyond
