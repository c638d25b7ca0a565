"""Build /metrics pages of two vLLM servers from recorded loads: a captured page with a trace's figures.

The recordings have gauges and generated tokens only. Finished requests are therefore left off the page:
derived from tokens, their count would grow while requests run, and look like arrivals that never happened.
"""

from __future__ import annotations

import csv
import math
import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

DATA = Path(__file__).resolve().parent.parent / "data"
ANSWER_TOKENS = 64
"""Tokens of an answer, for the histograms of lives and lengths, whose counts are not used as arrivals."""
ALARM, FINE, QUIET = ("oscillating",), ("balanced", "unknown"), ("idle", "unknown")
RIGHT: Mapping[str, tuple[str, ...]] = {
    "leastbusy-c16": ALARM,
    "leastbusy-c16-b": ALARM,
    "leastbusy-c16-busy": ALARM,
    "leastbusy-c16-busy-b": ALARM,
    "cooldown-c64": ALARM,
    "leastbusy-warm-c64": FINE,
    "leastbusy-c2": QUIET,
    "shuffle-c16": FINE,
    "shuffle-c16-b": FINE,
    "shuffle-c16-busy": FINE,
    "shuffle-c16-busy-b": FINE,
    "shuffle-c16-busy-c": FINE,
    "shuffle-c16-busy-d": FINE,
    "shuffle-c64": FINE,
}
"""The right verdicts on each recorded trace."""
_LIVES = (("cooldown", 19.0), ("c64", 13.0), ("busy", 4.9), ("c2", 1.5), ("", 3.5))
"""Life of a request in seconds, by a part of the trace's name; the first match counts."""


@dataclass(frozen=True, slots=True)
class Trace:
    """One recording of two servers, with about four rows per second."""

    name: str
    life_s: float
    times_s: tuple[float, ...]
    rows: tuple[Mapping[str, float], ...]

    @property
    def seconds(self) -> float:
        """Seconds from the first row to the last."""
        return self.times_s[-1] - self.times_s[0]

    def page(self, side: str, at_s: float) -> bytes:
        """Return the page of server `side` ("a" or "b") `at_s` seconds after the start."""
        row = self.rows[max(0, bisect_right(self.times_s, self.times_s[0] + at_s) - 1)]
        running, waiting, made = (row[f"{name}_{side}"] for name in ("running", "waiting", "generated"))
        ended = math.floor(made / ANSWER_TOKENS)
        values = {
            "vllm:num_requests_running": running,
            "vllm:num_requests_waiting": waiting,
            "vllm:num_requests_waiting_by_reason|capacity": waiting,
            "vllm:generation_tokens_total": made,
            "vllm:e2e_request_latency_seconds_sum": ended * self.life_s,
            "vllm:e2e_request_latency_seconds_count": ended,
            "vllm:request_generation_tokens_sum": ended * ANSWER_TOKENS,
            "vllm:request_generation_tokens_count": ended,
        }
        parts = template()
        return "".join(
            part if key is None else f"{part}{self._value(key, values, ended)}\n" for part, key in parts
        ).encode()

    def _value(self, key: str, values: Mapping[str, float], ended: int) -> float:
        """Return the figure of one line; a key with "<" and an edge is a histogram bucket."""
        name, _, edge = key.partition("<")
        if not edge:
            return values[key]
        longest = self.life_s if name.startswith("vllm:e2e") else ANSWER_TOKENS
        return float(ended) if float(edge) >= longest else 0.0


@cache
def template() -> tuple[tuple[str, str | None], ...]:
    """Return the captured page in pieces: (text, key of the figure that follows it or None)."""
    page = (DATA / "vllm-0.32" / "t009.prom").read_text(encoding="utf-8")
    figure = re.compile(
        r"^(vllm:(?:num_requests_running|num_requests_waiting|num_requests_waiting_by_reason"
        r"|generation_tokens_total|(?:e2e_request_latency_seconds"
        r"|request_generation_tokens)_(?:bucket|sum|count)))(\{[^}]*\}) .*$"
    )
    parts: list[tuple[str, str | None]] = []
    text = ""
    for line in page.splitlines():
        if line.startswith("vllm:request_success_total"):
            continue
        found = figure.match(line)
        key = None if found is None else _key(found[1], found[2])
        if found is None or key is None:
            text += f"{line}\n"
        else:
            parts.append((f"{text}{found[1]}{found[2]} ", key))
            text = ""
    return (*parts, (text, None))


def _key(name: str, labels: str) -> str | None:
    """Return the key of a line's figure; None if the line stays as captured."""
    if name.endswith("_bucket"):
        edge = re.search(r'le="([^"]+)"', labels)
        return None if edge is None else f"{name.removesuffix('_bucket')}<{edge[1].replace('+', '')}"
    if name == "vllm:num_requests_waiting_by_reason":
        return f"{name}|capacity" if '="capacity"' in labels else None
    return name


@cache
def trace(name: str) -> Trace:
    """Read a recorded trace."""
    with (DATA / "traces" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        rows = tuple(
            {key: float(value) for key, value in row.items() if value} for row in csv.DictReader(file)
        )
    life_s = next(seconds for part, seconds in _LIVES if part in name)
    return Trace(name, life_s, tuple(row["t_s"] for row in rows), rows)
