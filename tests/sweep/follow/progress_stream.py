"""A progress stream as llama-benchy writes it, made by hand: lines, and a file that grows with them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparktop.sweep.follow.lines import SCHEMA

BEGAN = 1_795_000_000.0
"""Unix time of the first line."""
RESULTS = Path(__file__).parent.parent.parent / "data" / "results"
RECORDED = RESULTS / "llama-benchy-0.4.0-bursts-progress.jsonl"
"""What llama-benchy wrote while it made c = 1 and 4, two runs each; its own figures lie beside it."""
RECORDED_RESULT = RESULTS / "llama-benchy-0.4.0-bursts.json"


def line(kind: str, at_s: float, **fields: Any) -> bytes:  # noqa: ANN401 - it may be any JSON
    """Return a line, `at_s` seconds after the first one."""
    told = {"schema": SCHEMA, "type": kind, "ts": BEGAN + at_s, **fields}
    return json.dumps(told).encode() + b"\n"


@dataclass
class Stream:
    """Makes the lines of a run whose requests get a first token after half a second, then one each 0.1 s."""

    at_s: float = 0.0
    """Where the next burst begins."""
    base_url: str = "http://127.0.0.1:8000/v1"
    model: str = "m"
    label: str = ""
    tokens: int = 6
    _next_id: int = 0
    lines: list[bytes] = field(default_factory=lambda: [line("header", 0.0, llama_benchy_version="0.4.0")])
    """All so far, in order."""

    def start(self, request_id: int, at_s: float, concurrency: int, run: int, **changed: Any) -> bytes:  # noqa: ANN401 - as above
        """Return the line of a request's start."""
        asked = {
            "model": self.model,
            "base_url": self.base_url,
            "prompt_size": 100,
            "response_size": self.tokens,
            "context_size": 0,
            "concurrency": concurrency,
            "run_index": run,
            "target_label": self.label,
        }
        return line("request_start", at_s, request_id=request_id, **{**asked, **changed})

    def burst(self, concurrency: int, run: int, *, error: str = "", **changed: Any) -> list[bytes]:  # noqa: ANN401 - as above
        """Add one run of a level; return its lines. With `error` the first request fails at once."""
        began = self.at_s
        ids = range(self._next_id, self._next_id + concurrency)
        self._next_id += concurrency
        made = [self.start(one, began, concurrency, run, **changed) for one in ids]
        whole = list(ids)
        if error:
            made.append(self.end(whole.pop(0), began + 0.2, tokens=0, error=error))
        first = began + 0.5
        for one in whole:
            made.append(line("request_first_response", first, request_id=one, ttfr_s=0.5))
            made.append(line("request_first_token", first, request_id=one, ttft_s=0.5))
        for number in range(self.tokens):
            at_s = first + 0.1 * number
            made += [line("tokens", at_s, request_id=one, count=1, snippet=" the") for one in whole]
        over = first + 0.1 * (self.tokens - 1)
        made += [self.end(one, over) for one in whole]
        self.at_s = over + 0.5
        self.lines += made
        return made

    def end(self, request_id: int, at_s: float, *, tokens: int | None = None, error: str = "") -> bytes:
        """Return the line of a request's end."""
        return line(
            "request_end",
            at_s,
            request_id=request_id,
            total_tokens=self.tokens if tokens is None else tokens,
            prompt_tokens=100 if not error else 0,
            decode_seconds=0.5,
            error=error,
        )

    def level(self, concurrency: int, runs: int = 2, **changed: Any) -> None:  # noqa: ANN401 - as above
        """Add a level."""
        for run in range(1, runs + 1):
            self.burst(concurrency, run, **changed)

    def complete(self, status: str = "ok") -> bytes:
        """Add the end of the run."""
        made = line("bench_complete", self.at_s, status=status)
        self.lines.append(made)
        return made
