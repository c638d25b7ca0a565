"""The codes of warnings on the result of a level: a short name, the meaning and the remedy of each."""

from __future__ import annotations

from sparktop.model.explained import Explained

CLIENT_LAG, QUEUE_LIMITED, CACHE_HITS = "client_lag", "queue_limited", "cache_hits"
FOREIGN_TRAFFIC, COUNT_MISMATCH, SHORT_OUTPUT = "foreign_traffic", "count_mismatch", "short_output"
TOO_SHORT, THROTTLED, CLOCK_SHIFT, FEW_RUNS = "too_short", "throttled", "clock_shift", "few_runs"
ERRORS, MDNS_TARGET, RESTARTED, CUT_SHORT = "errors", "mdns_target", "restarted", "cut_short"
HIDDEN_TOKENS, UNCOUNTED_TOKENS = "hidden_tokens", "uncounted_tokens"
SHORT_PROMPT, CONTEXT_LENGTH = "short_prompt", "context_length"
UNSTABLE, OVERLOADED, LATE_SENDS = "unstable", "overloaded", "late_sends"
UNANSWERED, FEW_CALLS = "unanswered", "few_calls"
CONTEXT_LOST, CONTEXT_UNKNOWN = "context_lost", "context_unknown"
NO_PREFIX_CACHE, DRIFT = "no_prefix_cache", "drift"

WORDS = {
    CLIENT_LAG: "generator too slow",
    QUEUE_LIMITED: "requests waited",
    CACHE_HITS: "cache hits",
    CONTEXT_LOST: "context evicted",
    CONTEXT_UNKNOWN: "hits unknown",
    NO_PREFIX_CACHE: "no prefix cache",
    FOREIGN_TRAFFIC: "foreign load",
    COUNT_MISMATCH: "count mismatch",
    HIDDEN_TOKENS: "hidden tokens",
    SHORT_PROMPT: "short prompt",
    CONTEXT_LENGTH: "context length",
    UNCOUNTED_TOKENS: "tokens not counted",
    SHORT_OUTPUT: "short output",
    TOO_SHORT: "too short",
    THROTTLED: "throttled",
    CLOCK_SHIFT: "clock shift",
    FEW_RUNS: "few runs",
    ERRORS: "errors",
    MDNS_TARGET: "mDNS name",
    RESTARTED: "restarted",
    CUT_SHORT: "cut short",
    UNSTABLE: "unstable",
    OVERLOADED: "overloaded",
    LATE_SENDS: "late sends",
    UNANSWERED: "unanswered",
    FEW_CALLS: "few calls",
    DRIFT: "not reproduced",
}
"""Short name of each code, where there is no room for its sentence."""

MEANINGS = {
    CLIENT_LAG: Explained(
        "the load generator was late: its loop lagged, it used a whole core, or the machine was busy",
        "run the client on another machine, or with fewer requests at once",
    ),
    QUEUE_LIMITED: Explained(
        "requests waited at a server for a slot or for KV cache; latencies include that wait",
        "lower the concurrency, or raise --max-num-seqs; valid for this load",
    ),
    CACHE_HITS: Explained(
        "prompt tokens came from the prefix cache although every prompt is new: prefill looks too fast",
        "restart the server, or check whether others send the same prompts",
    ),
    CONTEXT_LOST: Explained(
        "a part of the context was not in the prefix cache any more and was computed again",
        "fewer requests at once, smaller depths, or more KV cache",
    ),
    CONTEXT_UNKNOWN: Explained(
        "the server does not report cached tokens, so it is not known whether the context was cached",
        "vLLM: --enable-prompt-tokens-details",
    ),
    NO_PREFIX_CACHE: Explained(
        "nothing came from the prefix cache",
        "where it is off: start the server without --no-enable-prefix-caching; where it is on: the model, a "
        "cache salt or a changed beginning of the prompts prevents hits",
    ),
    FOREIGN_TRAFFIC: Explained(
        "the server generated or read more tokens than this sweep asked for, or did not come to rest before",
        "repeat it while no other client uses the server",
    ),
    COUNT_MISMATCH: Explained(
        "the tokens counted in the streams and those counted by the server differ by more than 1 %",
        "trust the server's count; tokens may be hidden from the stream",
    ),
    HIDDEN_TOKENS: Explained(
        "tokens were generated that the stream does not show, such as reasoning that is filtered",
        "compare by the server's usage; a TTFT is that of the first token shown",
    ),
    SHORT_PROMPT: Explained(
        "the server counted another prompt length than was asked for: it may have cut the prompts",
        "raise the server's context (Ollama: num_ctx), or ask for the length that it takes (--pp)",
    ),
    CONTEXT_LENGTH: Explained(
        "the server counted another context length than the depth that was asked for",
        "compare by the counted length; exact depths need a server with /tokenize",
    ),
    UNCOUNTED_TOKENS: Explained(
        "the server sends no token counts: rates count chunks, and the time between tokens is unknown",
        "compare only with the same server, or have it send usage",
    ),
    SHORT_OUTPUT: Explained(
        "answers ended before the length asked for", "check that the server honours ignore_eos and min_tokens"
    ),
    TOO_SHORT: Explained("all runs together lasted less than 10 s", "more runs, or longer answers"),
    THROTTLED: Explained(
        "a machine was throttled for more than 1 % of the level", "cooler air, power supply; repeat it"
    ),
    CLOCK_SHIFT: Explained(
        "levels that are compared ran at different GPU clocks",
        "fix the clock, or repeat both in turns (--order abba)",
    ),
    FEW_RUNS: Explained("fewer than 3 runs have no interval worth its name", "--runs 3 or more"),
    ERRORS: Explained(
        "some requests failed; figures are of the others", "see the error words, then the server's log"
    ),
    MDNS_TARGET: Explained("the target is a .local name, whose lookup can take seconds", "use its address"),
    RESTARTED: Explained("the server restarted during the level", "repeat it"),
    CUT_SHORT: Explained("the level ended before its time, for the reason named", "repeat it"),
    UNSTABLE: Explained(
        "requests came faster than the server answers: latencies grow for as long as that lasts",
        "a lower rate",
    ),
    OVERLOADED: Explained(
        "the client's limit of requests in flight was reached: latencies are lower bounds", "a lower rate"
    ),
    LATE_SENDS: Explained(
        "requests were sent later than they were due; TTFT due and E2E due include that wait",
        "run the client on an idle machine",
    ),
    UNANSWERED: Explained("requests had no answer when the run ended", "a longer run or a lower load"),
    DRIFT: Explained(
        "the level was measured again at the end of a search, with another result than before",
        "see the clocks, temperatures and other clients of the server; repeat it",
    ),
    FEW_CALLS: Explained("too few calls for the quantiles asked for", "a longer --duration"),
}
"""What each code means, and what to do."""
