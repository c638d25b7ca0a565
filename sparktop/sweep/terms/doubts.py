"""The codes of reasons to doubt the result of a level, with a short name for each."""

from __future__ import annotations

CLIENT_LAG, QUEUE_LIMITED, CACHE_HITS = "client_lag", "queue_limited", "cache_hits"
FOREIGN_TRAFFIC, COUNT_MISMATCH, SHORT_OUTPUT = "foreign_traffic", "count_mismatch", "short_output"
TOO_SHORT, THROTTLED, CLOCK_SHIFT, FEW_RUNS = "too_short", "throttled", "clock_shift", "few_runs"
ERRORS, MDNS_TARGET, RESTARTED, CUT_SHORT = "errors", "mdns_target", "restarted", "cut_short"
HIDDEN_TOKENS = "hidden_tokens"
UNSTABLE, OVERLOADED, LATE_SENDS = "unstable", "overloaded", "late_sends"
UNANSWERED, FEW_CALLS = "unanswered", "few_calls"
CONTEXT_LOST, CONTEXT_UNKNOWN = "context_lost", "context_unknown"
NO_PREFIX_CACHE = "no_prefix_cache"

WORDS = {
    CLIENT_LAG: "client-limited",
    QUEUE_LIMITED: "queue-limited",
    CACHE_HITS: "cache hits",
    CONTEXT_LOST: "context evicted",
    CONTEXT_UNKNOWN: "hits unknown",
    NO_PREFIX_CACHE: "no prefix cache",
    FOREIGN_TRAFFIC: "foreign load",
    COUNT_MISMATCH: "count mismatch",
    HIDDEN_TOKENS: "hidden tokens",
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
}
"""Short name of each code, where there is no room for its sentence."""
