"""The metrics of a level: name, unit and definition of each, for all tables; bounds of requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct

from sparktop.graphics import numbers

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
"""Names of all latencies of a level."""


class Metric(Struct, frozen=True):
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
    meaning: str = ""
    """The same in plain words, where a table has several metrics that read alike."""

    def text(self, value: float | None) -> str:
        """Return a value of this metric as text without unit, such as "12.3" or "1,234"; "–" for None."""
        return numbers.decimal(value, self.decimals)


def _rate(name: str, title: str, definition: str, meaning: str, decimals: int = 1) -> Metric:
    return Metric(name, title, "tok/s", definition, decimals=decimals, meaning=meaning)


def _latency(name: str, title: str, definition: str, decimals: int = 0) -> Metric:
    return Metric(name, title, "ms", definition, more_is_better=False, decimals=decimals)


_ALL = (
    _rate(
        "decode_tps",
        "Decode",
        "(tokens - one per request) / (latest last token - earliest first token)",
        "generation, once first tokens come",
    ),
    _rate(
        "prefill_tps",
        "Prefill",
        "all prompt tokens / (latest first token - earliest start)",
        "reading of prompts",
        decimals=0,
    ),
    _rate("peak_tps", "Peak", "most tokens in any second of a run", "the best second"),
    _rate(
        "pure_decode_tps",
        "Pure decode",
        "each stream's own rate, added up, while all decode",
        "generation while no request reads its prompt",
    ),
    _rate(
        "sustained_tps",
        "Sustained",
        "tokens / time while 95 % of the concurrency are in flight",
        "generation while nearly all requests run",
    ),
    _rate(
        "output_tps",
        "Output",
        "all generated tokens / duration",
        "generation over the whole run, with waiting and prefill",
    ),
    _rate("total_tps", "Total", "prompt and generated tokens / duration", "the same with prompt tokens"),
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
    _latency("client_wait_ms", "Client wait", "start - when the request was due", decimals=1),
    _latency("ttft_tool_ms", "TTFT after tool", "TTFT of calls of agents with the output of a tool"),
    _latency("ttft_human_ms", "TTFT after person", "TTFT of calls of agents with a person's later request"),
    _latency("request_ms", "Model time", "E2E of all calls that a person's request took, without tools"),
    _latency("ttft_ms", "TTFT", "first token - start of the request; reasoning counts; mean over requests"),
    _latency("ttfr_ms", "TTFR", "first event of the stream - start of the request; mean over requests"),
    _latency("first_answer_ms", "First answer", "first token that is not reasoning - start of the request"),
    _latency("itl_ms", "ITL", "gap between consecutive tokens; mean over all gaps", decimals=1),
    _latency(
        "tpot_ms",
        "TPOT",
        "(last - first token) / tokens after the first read; mean over requests",
        decimals=1,
    ),
    _latency("e2e_ms", "E2E", "end - start of the request; mean over requests"),
)
METRICS = {metric.name: metric for metric in _ALL}
"""Every metric by name, in the order of table columns."""

DECODE_IN_POSTS = "(output tokens − one per request) / (last token − first token of a run)"
"""What posts say of the decode rate, by which they are recognised as made by sparktop."""


def main_rate_of(levels: Iterable[Collection[str]]) -> str | None:
    """Return the main token rate of levels, of which `levels` has the names of the metrics; None for none."""
    return _main_rate(Counter(name for names in levels for name in names))


def _main_rate(counts: Mapping[str, int]) -> str | None:
    return max(filter(counts.get, MAIN_RATES), key=counts.__getitem__, default=None)


def judging_metrics(counts: Mapping[str, int]) -> tuple[str, ...]:
    """Return the names of the metrics that judge targets: the main token rate, TTFT and prefill rate.

    `counts` has the number of levels by metric. Requests at a rate are judged by their latencies from the due
    time: token rates follow from the rate.
    """
    if due_metrics := tuple(name for name in DUE_LATENCIES[:2] if counts.get(name)):
        return due_metrics
    return tuple(name for name in (_main_rate(counts), "ttft_ms", "prefill_tps") if name and counts.get(name))


def in_sentence(title: str) -> str:
    """Return the title of a metric as within a sentence: "decode", "TTFT due"."""
    return " ".join(word if word.isupper() else word.lower() for word in title.split())


TERMS = {
    "❌": "left out: the server does not take requests of this length",
    "std": "standard deviation over runs",
    "Padding": "share of a batch that is computed for nothing: the batch runs in the next larger CUDA graph",
    "Of own best": "decode / the best of the server itself, of its version and options, at this concurrency",
    "Of published": "decode / the highest of the published tables (sparktop compare --list) for model, "
    "engine, machine and concurrency whose lengths are like these (within 10 %) or not stated",
    "Of limit": "decode / (memory bandwidth × tokens of a step / bytes of weights that the step reads)",
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
    "By counters": "prompt tokens that the prefix cache had in the whole level, by the servers' own counters",
    "Amplification": "prompt tokens computed / new ones: 1 is a perfect prefix cache",
    "Compactions": "calls before which a conversation had to be shortened",
    "Ended early": "conversations that an error ended, with the errors",
    "Fit": "conversations of mean length that the KV caches hold at once, the shared start counted once",
    "Interactivity": "1 / 90th percentile of (E2E / output tokens) in tok/s; not 1 / TPOT",
    "Remarks": "why a level may not be what it seems (a warning), or why it is slow; sentences are under "
    "'Remarks on levels'",
}
"""Meaning of other terms and signs in a report's tables."""


def shown(definition: str) -> str:
    """Return a definition as people read it; files have hyphens for its minus signs."""
    return definition.replace(" - ", f" {numbers.MINUS} ")


def metric_lines(names: Collection[str]) -> list[str]:
    """Return a line of text for each metric in `names`, with title, unit, meaning and definition."""
    return [
        f"{metric.title} ({metric.unit}): "
        f"{': '.join(filter(None, (metric.meaning, shown(metric.definition))))}."
        for metric in _ALL
        if metric.name in names
    ]


def term_lines(terms: Collection[str]) -> list[str]:
    """Return a line of text with the meaning of each key of `TERMS` that is in `terms`."""
    return [f"{term}: {meaning}." for term, meaning in TERMS.items() if term in terms]


CLIENT_LAG, QUEUE_LIMITED, CACHE_HITS = "client_lag", "queue_limited", "cache_hits"
FOREIGN_TRAFFIC, COUNT_MISMATCH, SHORT_OUTPUT = "foreign_traffic", "count_mismatch", "short_output"
TOO_SHORT, THROTTLED, CLOCK_SHIFT, FEW_RUNS = "too_short", "throttled", "clock_shift", "few_runs"
ERRORS, MDNS_TARGET, RESTARTED, CUT_SHORT = "errors", "mdns_target", "restarted", "cut_short"
HIDDEN_TOKENS, UNCOUNTED_TOKENS = "hidden_tokens", "uncounted_tokens"
BURSTS, LONG_OUTPUT, SPEED_CHANGED = "bursts", "long_output", "speed_changed"
SHORT_PROMPT, CONTEXT_LENGTH = "short_prompt", "context_length"
UNSTABLE, OVERLOADED, LATE_SENDS = "unstable", "overloaded", "late_sends"
UNANSWERED, FEW_CALLS = "unanswered", "few_calls"
CONTEXT_LOST, CONTEXT_UNKNOWN = "context_lost", "context_unknown"
NO_PREFIX_CACHE, DRIFT = "no_prefix_cache", "drift"


class LevelWarning(Struct, frozen=True):
    """A reason to doubt the metrics of a level: its code in files, its words, what it means, what to do."""

    code: str
    word: str
    """Short name, where there is no room for a sentence."""
    meaning: str
    remedy: str = ""
    brief: str = ""
    """One word in place of a long `word`, for narrow tables; "" where `word` is short."""
    effect: str = ""
    """What it does to the figures, for the list of warnings of a result; "" where `word` says so."""


WARNINGS = {
    warning.code: warning
    for warning in (
        LevelWarning(
            UNSTABLE,
            "rate too high",
            "requests came faster than the server answers: latencies grow for as long as that lasts",
            "a lower rate",
            brief="rate",
        ),
        LevelWarning(
            OVERLOADED,
            "in-flight limit",
            "the client's limit of requests in flight was reached: latencies are lower bounds",
            "a lower rate",
            brief="in flight",
        ),
        LevelWarning(
            SHORT_PROMPT,
            "short prompt",
            "the server counted another prompt length than was asked for: it may have cut the prompts",
            "raise the server's context (Ollama: num_ctx), or ask for the length that it takes (--pp)",
            brief="prompt",
        ),
        LevelWarning(
            CUT_SHORT, "unfinished", "the level ended before its time, for the reason named", "repeat it"
        ),
        LevelWarning(
            DRIFT,
            "not reproduced",
            "the level was measured again at the end of a search, with another result than before",
            "see the clocks, temperatures and other clients of the server; repeat it",
            brief="drift",
        ),
        LevelWarning(
            ERRORS,
            "failed requests",
            "some requests failed; figures are of the others",
            "see the error words, then the server's log",
            brief="failed",
            effect="figures are of the others",
        ),
        LevelWarning(RESTARTED, "restarted", "the server restarted during the level", "repeat it"),
        LevelWarning(
            UNANSWERED,
            "unanswered requests",
            "requests had no answer when the run ended",
            "a longer run or a lower load",
            brief="unanswered",
        ),
        LevelWarning(
            LATE_SENDS,
            "sent late",
            "requests were sent later than they were due; TTFT due and E2E due include that wait",
            "run the client on an idle machine",
            effect="TTFT due and E2E due include the wait",
        ),
        LevelWarning(
            CLIENT_LAG,
            "load generator late",
            "the load generator was late: its loop lagged, it used a whole core, or the machine was busy",
            "run the client on another machine, or with fewer requests at once",
            brief="client late",
            effect="measured TTFT and ITL are too high",
        ),
        LevelWarning(
            CACHE_HITS,
            "prefix cache hits",
            "prompt tokens came from the prefix cache although every prompt is new: prefill looks too fast",
            "restart the server, or check whether others send the same prompts",
            brief="cache",
            effect="prefill looks too fast",
        ),
        LevelWarning(
            FOREIGN_TRAFFIC,
            "load from others",
            "the server generated or read more tokens than this sweep asked for, or did not come to rest "
            "before",
            "repeat it while no other client uses the server",
            brief="others",
        ),
        LevelWarning(
            COUNT_MISMATCH,
            "token counts differ",
            "the tokens counted in the streams and those counted by the server differ by more than 1 %",
            "trust the server's count; tokens may be hidden from the stream",
            brief="count",
        ),
        LevelWarning(
            HIDDEN_TOKENS,
            "tokens not streamed",
            "tokens were generated that the stream does not show, such as reasoning that is filtered",
            "compare by the server's usage; a TTFT is that of the first token shown",
            brief="hidden",
            effect="TTFT is that of the first token shown",
        ),
        LevelWarning(
            UNCOUNTED_TOKENS,
            "no token counts",
            "the server sends no token counts: rates count chunks, and the time between tokens is unknown",
            "compare only with the same server, or have it send usage",
            brief="uncounted",
            effect="rates count chunks",
        ),
        LevelWarning(
            BURSTS,
            "answers in bursts",
            "the first read of an answer brought several tokens: its TTFT is that of a later token",
            "turn off buffering in the proxy (nginx: proxy_buffering off)",
            brief="bursts",
        ),
        LevelWarning(
            THROTTLED,
            "throttled",
            "a machine was throttled for more than 1 % of the level",
            "cooler air, power supply; repeat it",
        ),
        LevelWarning(
            SPEED_CHANGED,
            "speed changed",
            "the rate fell or rose by a fifth or more from the first runs of the level to the last",
            "see clocks, temperatures, other clients, and what a router gave each server; repeat it",
            brief="changed",
            effect="by a fifth or more between runs",
        ),
        LevelWarning(
            CLOCK_SHIFT,
            "GPU clocks differ",
            "levels that are compared ran at different GPU clocks",
            "fix the clock, or repeat both in turns (--order abba)",
            brief="clock",
        ),
        LevelWarning(
            QUEUE_LIMITED,
            "requests waited",
            "requests waited at a server for a slot or for KV cache; latencies include that wait",
            "lower the concurrency, or raise --max-num-seqs; valid for this load",
            brief="queue",
            effect="decode, prefill and TTFT include the wait",
        ),
        LevelWarning(
            SHORT_OUTPUT,
            "answers too short",
            "answers ended before the length asked for",
            "check that the server honours ignore_eos and min_tokens",
            brief="short",
        ),
        LevelWarning(
            LONG_OUTPUT,
            "answers too long",
            "answers went on past the length asked for",
            "check that the server honours max_tokens; compare levels of equal lengths",
            brief="long",
        ),
        LevelWarning(
            MDNS_TARGET,
            "mDNS name",
            "the target is a .local name, whose lookup can take seconds",
            "use its address",
        ),
        LevelWarning(
            TOO_SHORT,
            "measured too briefly",
            "all runs together lasted less than 10 s, or those of a steady load less than 3 × the median E2E",
            "more runs, or longer answers",
            brief="too short",
            effect="less than 10 s",
        ),
        LevelWarning(
            FEW_RUNS,
            "fewer than 3 runs",
            "one or two runs are too few for a useful interval",
            "--runs 3 or more",
            brief="few runs",
        ),
        LevelWarning(
            CONTEXT_LOST,
            "context evicted",
            "a part of the context was not in the prefix cache any more and was computed again",
            "fewer requests at once, smaller depths, or more KV cache",
            brief="evicted",
        ),
        LevelWarning(
            CONTEXT_UNKNOWN,
            "cache hits unknown",
            "the server does not report cached tokens, so it is not known whether the context was cached",
            "vLLM: --enable-prompt-tokens-details",
            brief="hits",
        ),
        LevelWarning(
            NO_PREFIX_CACHE,
            "no prefix cache",
            "nothing came from the prefix cache",
            "where it is off: start the server without --no-enable-prefix-caching; where it is on: the "
            "model, a cache salt or a changed beginning of the prompts prevents hits",
            brief="no cache",
        ),
        LevelWarning(
            CONTEXT_LENGTH,
            "context of another length",
            "the server counted another context length than the depth that was asked for",
            "compare by the counted length; exact depths need a server with /tokenize",
        ),
        LevelWarning(
            FEW_CALLS, "too few calls", "too few calls for the quantiles asked for", "a longer --duration"
        ),
    )
}
"""Every warning by code, the most serious first: narrow tables show only the first ones of a level."""


MOST_CONCURRENCY = 65_536
"""Most requests at once of a level."""
MOST_TOKENS = 10_000_000
"""Maximum tokens of a prompt or of an answer; also the maximum number of requests of a level."""
MOST_RUNS = 1000
"""Most runs of a level."""
LEAST_S = 0.1
"""Minimum duration of a level in seconds."""
MOST_S = 86_400.0
"""Maximum duration of a level in seconds: a day."""
ERROR_SHARE = 0.01
"""Share of failed requests above which a level counts as failed, unless the user says otherwise."""
