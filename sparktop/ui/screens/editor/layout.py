"""The fields of the sweep editor: their labels, examples, words to choose from, and places in the form."""

from __future__ import annotations

from collections.abc import Mapping

from sparktop.sweep.plan.draft import CHOICES as DRAFT_CHOICES
from sparktop.sweep.plan.draft import DraftKind

WARM, COLD = "yes", "no"
LABELS = {
    "preset": "preset",
    "kind": "load",
    "concurrency": "concurrency",
    "rate": "requests/s",
    "arrivals": "arrivals",
    "agents": "agents",
    "trace_speed": "speed",
    "trace_range": "part",
    "trace_format": "format",
    "pp": "prompt tokens",
    "tg": "output tokens",
    "runs": "runs",
    "duration": "seconds",
    "requests": "requests",
    "mode": "sent",
    "order": "order",
    "warmup": "warm-up run",
    "api": "api",
    "headroom": "min free GiB",
    "gpu": "max GPU °C",
    "trace": "file",
    "workload": "workload",
    "depth": "context tokens",
    "context": "context sent",
    "model": "model",
    "slo": "slo",
}
"""Labels of the fields, in the order in which a fault is looked for."""
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
    "requests": "from runs",
    "depth": "none; 0,4k,16k: before each prompt",
    "model": "the server's only or first one",
    "headroom": "8 unified, 0: off",
    "gpu": "92 unified, 0: off",
    "slo": "none; ttft_p90_ms=2000: the highest level that keeps it",
}
_EMPTY_OF: Mapping[tuple[str, str], str] = {
    (DraftKind.RATE, "duration"): "60",
    (DraftKind.AGENTS, "duration"): "by the workload",
    **{(kind, "runs"): "1" for kind in DraftKind if kind is not DraftKind.CONCURRENCY},
}
LEFT = (
    "concurrency",
    "rate",
    "arrivals",
    "agents",
    "trace_speed",
    "trace_range",
    "trace_format",
    "pp",
    "tg",
    "runs",
    "duration",
    "requests",
)
RIGHT = ("mode", "order", "warmup", "api", "headroom", "gpu")
FIRST = ("trace", "workload")
LAST = ("depth", "context", "model", "slo")
"""Fields above and below the two columns, because their values are long."""
KIND_TITLES: Mapping[str, str] = {
    DraftKind.CONCURRENCY.value: "at once",
    DraftKind.RATE.value: "per second",
    DraftKind.AGENTS.value: "agents",
    DraftKind.TRACE.value: "recorded",
}
"""Titles of the pages of the editor, one for each kind of load."""
ABOUT: Mapping[str, str] = {
    "preset": "values that belong together; each can be changed below",
    "kind": "how requests are sent: so many at once, at a rate, by agents",
    "targets": "what gets the load: a router or single servers; space marks one",
    "concurrency": "requests in flight at once; 1,4,16..256 goes on while tok/s rise",
    "rate": "requests per second, whatever the servers do; auto looks for the border",
    "arrivals": "the times between requests: by chance, constant, or in bursts",
    "agents": "programs whose calls use tools and repeat a long prefix",
    "trace_speed": "factor by which the recorded times are shortened",
    "trace_range": "the part of the recording that is sent, such as 10m..1h",
    "trace_format": "how the file is read; recognised by its first line",
    "pp": "tokens of each prompt; several lengths are levels of their own",
    "tg": "tokens that each request generates",
    "runs": "runs of each level; 3+: at least 3, and more until 10 s are measured",
    "duration": "seconds of each level, if it shall end by time",
    "requests": "requests of each run; at least as many as are in flight",
    "mode": "burst: all begin together; steady: one ends, the next begins",
    "order": "order of levels and targets; abba cancels a slow drift",
    "warmup": "an unmeasured run before each level, so that compilation is over",
    "api": "chat or plain completions",
    "headroom": "stops below this much free memory on a machine with unified memory",
    "gpu": "stops above this GPU temperature",
    "trace": "file with recorded traffic: times and lengths of requests",
    "workload": "what agents send: lengths, turns, tools",
    "depth": "tokens of context before each prompt",
    "context": "the context is sent by a request before, or with the prompt",
    "model": "name of the model that is requested",
    "slo": "limit that a level must hold; the sweep finds the highest level that does",
}
"""What each field means, in one row of a dialog of 80 columns."""
CHOICES = {**DRAFT_CHOICES, "warmup": (WARM, COLD)}


def placeholder(name: str, kind: str) -> str:
    """Return what stands in an empty text field while a sweep of this kind of load is edited."""
    return _EMPTY_OF.get((kind, name), _EMPTY.get(name, ""))
