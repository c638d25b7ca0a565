"""The metrics of a level: name, unit and one-line definition of each, for all tables that show them."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from sparktop.values import dataclass

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
"""Names of the metrics of a level that have one value per load run."""
MAIN_RATES = ("sustained_tps", "decode_tps", "output_tps", "total_tps")
"""The main token rate is that of these which most levels have, the first of equals."""
DUE_LATENCIES = ("ttft_due_ms", "e2e_due_ms", "client_wait_ms")
"""Latencies of an open loop, from the time at which a request was due; these judge it."""
GROWTH = "ttft_growth"
"""Name of the figure that a level has instead of latencies, if the server does not keep up with its rate."""
LATENCIES = ("ttfr_ms", "ttft_ms", "first_answer_ms", "itl_ms", "tpot_ms", "e2e_ms", *DUE_LATENCIES)
"""Names of the metrics of a level that are statistics over its requests."""
CALL_LATENCIES = ("ttft_tool_ms", "ttft_human_ms", "request_ms")
"""Latencies of a level of agents, from its result part."""
ALL_LATENCIES = (*LATENCIES, *CALL_LATENCIES)


@dataclass(frozen=True, slots=True)
class Metric:
    """The definition of a metric that is measured for each level of a sweep."""

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
        """Return a value of this metric as text without unit, such as "12.3" or "1,234"; "–" for None."""
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
    _latency("ttft_due_ms", "TTFT due", "first token - when the request was due, whatever it waited for"),
    _latency("e2e_due_ms", "E2E due", "end - when the request was due"),
    Metric(
        GROWTH,
        "TTFT growth",
        "s per s",
        "seconds by which TTFT due grows each second, where the server does not keep up; no other latency",
        more_is_better=False,
        decimals=2,
    ),
    _latency("client_wait_ms", "Client wait", "start - when the request was due", 1),
    _latency("ttft_tool_ms", "TTFT after tool", "TTFT of calls of agents with the output of a tool"),
    _latency("ttft_human_ms", "TTFT after person", "TTFT of calls of agents with a person's later request"),
    _latency("request_ms", "Model time", "E2E of all calls that a person's request took, without tools"),
    _latency("ttft_ms", "TTFT", "first token - start of the request; reasoning counts; mean over requests"),
    _latency("ttfr_ms", "TTFR", "first event of the stream - start of the request; mean over requests"),
    _latency("first_answer_ms", "First answer", "first token that is not reasoning - start of the request"),
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


def main_rate_of(levels: Iterable[Collection[str]]) -> str | None:
    """Return the main token rate of levels, of which `levels` has the names of the metrics; None for none."""
    known = list(levels)
    counts = {name: sum(name in one for one in known) for name in MAIN_RATES}
    most = max(counts.values())
    return next(name for name, count in counts.items() if count == most) if most else None


def in_sentence(title: str) -> str:
    """Return the title of a metric as within a sentence: "decode", "TTFT due"."""
    return " ".join(word if word.isupper() else word.lower() for word in title.split())


TERMS = {
    "❌": "the server refused requests of this length",
    "±": "standard deviation over runs",
    "Ratio": "standard deviation of the second target's runs / that of the first's",
    "Padding": "share of a batch that is computed for nothing: it runs in the next larger CUDA graph",
    "Roofline": "decode of one request alone / what the memory bandwidth allows it",
    "J/token": "mean power of all GPUs while they compute / output rate",
    "Accepted": "share of the tokens drafted by speculative decoding that were accepted, by the counters",
    "Cached": "prompt tokens that came from the prefix cache, as the server reports them",
    "Repeated": "prompt tokens that earlier requests of the trace hold: the most that a cache can have",
    "Beyond context": "requests of the trace that are longer than the server's context, which refuses them",
    "Not due": "turns whose predecessor had not ended when the replay was over, so that they were not sent",
    "Arrived (/s)": "requests that were due in the measured time / its duration; all latencies are of these",
    "Completed (/s)": "requests that were completed in the measured time / its duration",
    "In flight": "mean number of requests that were due and not answered yet; Most: their largest number",
    "Growth": "the server does not keep up: latencies depend on how long one looks, so none is shown",
    "Calls": "requests to the model in the measured time; figures rest on those that were answered",
    "From cache": "prompt tokens that the prefix cache had, as reported with the answers",
    "By counters": "the same for the whole level, by the servers' own counters",
    "Amplification": "prompt tokens computed / new ones: 1 is a perfect prefix cache",
    "Compactions": "calls before which a conversation had to be shortened",
    "Ended early": "conversations that an error ended, with the errors",
    "Fit": "conversations of mean length that the KV caches hold at once, the shared start counted once",
    "Interactivity": "1 / 90th percentile of (E2E / output tokens) in tok/s; not 1 / TPOT",
    "Warnings": "why a level may not be what it seems, or why it is slow; a list has a sentence for each",
}
"""Meaning of other terms and signs in a report's tables."""


def lines(names: Collection[str]) -> list[str]:
    """Return a line of text for each metric in `names`, with title, unit and definition."""
    return [
        f"{metric.title} ({metric.unit}): {metric.definition}." for metric in _ALL if metric.name in names
    ]


def term_lines(found: Collection[str]) -> list[str]:
    """Return a line of text with the meaning of each key of `TERMS` that is in `found`."""
    return [f"{term}: {meaning}." for term, meaning in TERMS.items() if term in found]
