"""The fields of the sweep editor: their labels, examples, words to choose from, and places in the form."""

from __future__ import annotations

from collections.abc import Mapping

from sparktop.sweep.plan.draft import CHOICES as DRAFT_CHOICES
from sparktop.sweep.plan.draft import DraftKind

WARM, COLD = "yes", "no"
Fields = Mapping[str, tuple[str, str]]
"""(Label, what it means) of fields by name, in the order in which they stand."""
_HEAD: Fields = {
    "preset": ("preset", "values that belong together; each can be changed below"),
    "kind": ("load", "how requests are sent: so many at once, at a rate, by agents"),
}
"""Fields above all others."""
_FIRST: Fields = {
    "trace": ("file", "file with recorded traffic: times and lengths of requests"),
    "workload": ("workload", "what agents send: lengths, turns, tools"),
}
"""Fields above the columns, because their values are long."""
_LEFT: Fields = {
    "concurrency": ("concurrency", "requests in flight at once; 1,4,16..256 goes on while tok/s rise"),
    "rate": ("requests/s", "requests per second, whatever the servers do; auto looks for the border"),
    "arrivals": ("arrivals", "the times between requests: by chance, constant, or in bursts"),
    "agents": ("agents", "programs whose calls use tools and repeat a long prefix"),
    "trace_speed": ("speed", "factor by which the recorded times are shortened"),
    "trace_range": ("part", "the part of the recording that is sent, such as 10m..1h"),
    "trace_format": ("format", "how the file is read; recognised by its first line"),
    "pp": ("prompt tokens", "tokens of each prompt; several lengths are levels of their own"),
    "tg": ("output tokens", "tokens that each request generates"),
    "runs": ("runs", "runs of each level; 3+: at least 3, and more until 10 s are measured"),
    "duration": ("seconds", "seconds of each level, if it shall end by time"),
    "requests": ("requests", "requests of each level, in place of runs; with steady those of each run"),
}
"""Fields in the left column."""
_RIGHT: Fields = {
    "mode": ("sent", "burst: all begin together; steady: one ends, the next begins"),
    "order": ("order", "order of levels and targets; abba cancels a slow drift"),
    "warmup": ("warm-up run", "an unmeasured run before each level, so that compilation is over"),
    "api": ("api", "chat or plain completions"),
    "headroom": ("min free GiB", "stops below this much free memory on a machine with unified memory"),
    "gpu": ("max GPU °C", "stops above this GPU temperature"),
}
"""Fields in the right column."""
_LAST: Fields = {
    "depth": ("context tokens", "tokens of context before each prompt"),
    "context": ("context sent", "the context is sent by a request before, or with the prompt"),
    "model": ("model", "name of the model that is requested"),
    "slo": ("slo", "limit that a level must hold; the sweep finds the highest level that does"),
}
"""Fields below the columns."""
_PARTS = (_HEAD, _FIRST, _LEFT, _RIGHT, _LAST)
FIRST, LEFT, RIGHT, LAST = tuple(_FIRST), tuple(_LEFT), tuple(_RIGHT), tuple(_LAST)
LABELS = {name: label for part in _PARTS for name, (label, _) in part.items()}
"""Labels of the fields, in the order in which a fault is looked for."""
_TARGETS = "what gets the load: a router or single servers; space marks one"
ABOUT = {"targets": _TARGETS} | {name: about for part in _PARTS for name, (_, about) in part.items()}
"""What each field means, in one row of a dialog of 80 columns."""
_EMPTY = {
    "concurrency": "1,4,16",
    "rate": "0.5,1,2; 0.5..4 rises; auto",
    "arrivals": "poisson, constant, bursty, trains, gamma:B",
    "agents": "1,4,16",
    "workload": "coder-quick; chat, coder, rag, or a TOML file of your own",
    "trace": "Mooncake, aiperf or Azure",
    "trace_speed": "1: as recorded",
    "trace_range": "all; 10m..1h",
    "pp": "128",
    "tg": "64",
    "runs": "till the time is up",
    "duration": "no limit",
    "requests": "runs × at once",
    "depth": "none; 0,4k,16k: before each prompt",
    "model": "the server's only or first one",
    "headroom": "8 if unified; 0: off",
    "gpu": "92 if unified; 0: off",
    "slo": "none; such as ttft_p90_ms=2000",
}
"""What an empty text field shows, by the field's name: what holds without a value, or examples."""
_EMPTY_OF: dict[tuple[str, str], str] = {
    **{(kind, "runs"): "1" for kind in DraftKind if kind is not DraftKind.CONCURRENCY},
    (DraftKind.RATE, "duration"): "60",
    (DraftKind.AGENTS, "duration"): "by the workload",
}
"""The same where it depends on the kind of load, by (kind, field)."""
KIND_TITLES: Mapping[str, str] = {
    DraftKind.CONCURRENCY.value: "at once",
    DraftKind.RATE.value: "per second",
    DraftKind.AGENTS.value: "agents",
    DraftKind.TRACE.value: "recorded",
}
"""Titles of the pages of the editor, one for each kind of load."""
CHOICES = {**DRAFT_CHOICES, "warmup": (WARM, COLD)}


def placeholder(name: str, kind: str) -> str:
    """Return what stands in an empty text field while a sweep of this kind of load is edited."""
    return _EMPTY_OF.get((kind, name), _EMPTY.get(name, ""))
