"""The figures of a level: name, unit and one-line definition of each, for every table that shows them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

RATES = (
    "prefill_tps",
    "decode_tps",
    "pure_decode_tps",
    "sustained_tps",
    "peak_tps",
    "output_tps",
    "total_tps",
    "requests_per_s",
)
"""Figures of a level with one value per run."""
LATENCIES = ("ttfr_ms", "ttft_ms", "first_answer_ms", "itl_ms", "tpot_ms", "e2e_ms")
"""Figures of a level that are taken over its requests."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure that is measured for each level of a sweep."""

    name: str
    """Key in the result file."""
    title: str
    """Heading of its column in tables."""
    unit: str
    definition: str
    """How sparktop computes it. Another tool may use the same name for a different time window."""
    more_is_better: bool = True
    decimals: int = 1
    """Decimal places for values below 1000; larger values are shown without decimals."""

    def text(self, value: float | None) -> str:
        """Return the value without its unit, with thousands separators; "–" for None."""
        if value is None:
            return "–"
        if abs(value) >= _TOO_LONG_FROM:
            return f"{value:.3g}"
        digits = self.decimals if abs(value) < _WHOLE_FROM else 0
        return f"{value:,.{digits}f}"


_WHOLE_FROM = 1000
_TOO_LONG_FROM = 1e9


def _rate(name: str, title: str, definition: str, decimals: int = 1) -> Metric:
    return Metric(name, title, "tok/s", definition, decimals=decimals)


def _latency(name: str, title: str, definition: str, decimals: int = 0) -> Metric:
    return Metric(name, title, "ms", definition, more_is_better=False, decimals=decimals)


_ALL = (
    _rate("decode_tps", "Decode", "tokens after each request's first / (latest last - earliest first token)"),
    _rate("prefill_tps", "Prefill", "all prompt tokens / (latest first token - earliest start)", 0),
    _rate("peak_tps", "Peak", "most tokens in any second of a run"),
    _rate("pure_decode_tps", "Pure decode", "each stream's own rate, added up, while all decode"),
    _rate("sustained_tps", "Sustained", "tokens / time while 95 % of the concurrency are in flight"),
    _rate("output_tps", "Output", "all generated tokens / duration"),
    _rate("total_tps", "Total", "prompt and generated tokens / duration"),
    Metric("requests_per_s", "Completed", "req/s", "completed requests / duration", decimals=2),
    _latency("ttft_ms", "TTFT", "first token - start of the request; reasoning counts; mean over requests"),
    _latency("ttfr_ms", "TTFR", "first event of the stream - start of the request; mean over requests"),
    _latency("first_answer_ms", "First answer", "first token that is no reasoning - start of the request"),
    _latency("itl_ms", "ITL", "gap between consecutive tokens; mean over all gaps", 1),
    _latency(
        "tpot_ms",
        "TPOT",
        "(last - first token) / tokens after the first read; mean over requests",
        1,
    ),
    _latency("e2e_ms", "E2E", "end - start of the request; mean over requests"),
)
METRICS = {metric.name: metric for metric in _ALL}
"""Every metric by name, in the order of table columns."""

TERMS = {
    "❌": "the server refused requests of this length",
    "±": "standard deviation over runs",
    "Ratio": "standard deviation of the second target's runs / that of the first's",
    "Padding": "share of a batch that is computed for nothing: it runs in the next larger CUDA graph",
    "Roofline": "decode of one request alone / what the memory bandwidth allows it",
    "Marks": "reasons to doubt a level or why it is slow; the list of marks has a sentence for each",
}
"""Other terms and signs in a report's tables, with their meaning."""


def lines(names: Collection[str]) -> list[str]:
    """Return one line of definition for each metric whose name is in `names`."""
    return [
        f"{metric.title} ({metric.unit}): {metric.definition}." for metric in _ALL if metric.name in names
    ]


def term_lines(found: Collection[str]) -> list[str]:
    """Return one line of explanation for each term that is in `found`."""
    return [f"{term}: {meaning}." for term, meaning in TERMS.items() if term in found]
