"""Rates and quantiles from counters and buckets: pure arithmetic on raw samples, standard library only."""

from sparktop.rates.lineage import Lineage, Link, LinkKind, follow
from sparktop.rates.quantiles import histogram_latency, histogram_quantile, merge
from sparktop.rates.tally import LATENCIES, Tally, Window, advance

__all__ = [
    "LATENCIES",
    "Lineage",
    "Link",
    "LinkKind",
    "Tally",
    "Window",
    "advance",
    "follow",
    "histogram_latency",
    "histogram_quantile",
    "merge",
]
