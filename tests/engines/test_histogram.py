"""Histograms from buckets are right or None."""

from __future__ import annotations

import math

import pytest

from sparktop.engines.exposition import Family, Labels, Page
from sparktop.engines.lanes import HistogramReader
from sparktop.model.engine import Histogram

INF = math.inf


def read_histogram(buckets: Family, sums: Family, counts: Family) -> Histogram | None:
    """Return the histogram of a page with these samples only."""
    page = Page.of({"buckets": buckets, "sums": sums, "counts": counts})
    return HistogramReader(*page.places.values()).read(page.values_read)


def buckets(*pairs: tuple[str, float], **labels: str) -> Family:
    others = tuple(labels.items())
    found: Family = {}
    for bound, count in pairs:
        key: Labels = tuple(sorted((*others, ("le", bound))))
        found[key] = count
    return found


def test_buckets_are_put_in_order() -> None:
    """Buckets are sorted by their bounds as numbers, whatever their order and spelling."""
    family = buckets(("+Inf", 9), ("10.0", 7), ("2.5", 3), ("1e1", 7), ("1", 1))
    del family[(("le", "1e1"),)]
    expected = Histogram(bounds=(1.0, 2.5, 10.0, INF), cumulative=(1, 3, 7, 9), sum=4.5)
    assert read_histogram(family, {(): 4.5}, {}) == expected


def test_a_missing_inf_bucket_is_filled_from_the_count() -> None:
    """A missing `+Inf` bucket is taken from the count."""
    found = read_histogram(buckets(("1", 2), ("5", 6)), {(): 3.0}, {(): 8.0})
    assert found == Histogram(bounds=(1.0, 5.0, INF), cumulative=(2, 6, 8), sum=3.0)


def test_series_with_the_same_bounds_are_added_up() -> None:
    """Series with the same bounds, as of two models of a lane, are added up."""
    family = buckets(("1", 2), ("+Inf", 5), model="a") | buckets(("1", 1), ("+Inf", 3), model="b")
    sums: Family = {(("model", "a"),): 4.0, (("model", "b"),): 2.5}
    assert read_histogram(family, sums, {}) == Histogram((1.0, INF), (3, 8), 6.5)


@pytest.mark.parametrize(
    ("family", "sums", "counts"),
    [
        pytest.param({}, {(): 1.0}, {(): 1.0}, id="no bucket"),
        pytest.param(buckets(("1", 3), ("5", 2), ("+Inf", 4)), {(): 1.0}, {}, id="counts fall"),
        pytest.param(buckets(("1", -1), ("+Inf", 4)), {(): 1.0}, {}, id="negative count"),
        pytest.param(buckets(("1", math.nan), ("+Inf", 4)), {(): 1.0}, {}, id="count is NaN"),
        pytest.param(buckets(("1", 1), ("+Inf", INF)), {(): 1.0}, {}, id="infinite count"),
        pytest.param(buckets(("1", 1), ("1.0", 1), ("+Inf", 4)), {(): 1.0}, {}, id="one bound twice"),
        pytest.param(buckets(("one", 1), ("+Inf", 4)), {(): 1.0}, {}, id="bound is a word"),
        pytest.param(buckets(("NaN", 1), ("+Inf", 4)), {(): 1.0}, {}, id="bound is NaN"),
        pytest.param(buckets(("-Inf", 0), ("+Inf", 4)), {(): 1.0}, {}, id="bound is -Inf"),
        pytest.param({(("model", "a"),): 3.0}, {(): 1.0}, {}, id="no bound"),
        pytest.param(buckets(("1", 1)), {(): 1.0}, {}, id="neither +Inf nor count"),
        pytest.param(buckets(("1", 5)), {(): 1.0}, {(): 4.0}, id="count below a bucket"),
        pytest.param(buckets(("1", 1), ("+Inf", 4)), {}, {}, id="no sum"),
        pytest.param(buckets(("1", 1), ("+Inf", 4)), {(): -1.0}, {}, id="negative sum"),
        pytest.param(buckets(("1", 1), ("+Inf", 4)), {(): math.nan}, {}, id="sum is NaN"),
        pytest.param(
            buckets(("1", 1), ("+Inf", 4), model="a") | buckets(("2", 1), ("+Inf", 4), model="b"),
            {(("model", "a"),): 1.0, (("model", "b"),): 1.0},
            {},
            id="different bounds",
        ),
    ],
)
def test_a_doubtful_histogram_is_none(family: Family, sums: Family, counts: Family) -> None:
    """If buckets, sum or count are missing or contradict each other, there is no histogram."""
    assert read_histogram(family, sums, counts) is None
