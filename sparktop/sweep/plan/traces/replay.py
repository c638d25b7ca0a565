"""Recorded traffic as the only level of a sweep: the part of the file that is replayed, and what it holds."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from sparktop.errors import UsageError
from sparktop.model.load import LoadKind, LoadPoint
from sparktop.model.text import clean
from sparktop.typed import seconds, split_range

if TYPE_CHECKING:  # plans are read at every start, traces seldom
    from sparktop.sweep.plan.traces.summary import TraceSummary
    from sparktop.sweep.plan.traces.trace import TraceChoice

PATTERN = "trace"
"""Name of the arrivals in place of a pattern."""
FORMAT_NAMES = ("mooncake", "aiperf", "azure")
"""The values of `TraceFormat`, which is loaded late."""
SPEEDS = (0.001, 1000.0)
"""Smallest and largest speed."""
_LEAST_PER_S = 0.001
_DIGITS = 3
_LONGEST_NAME = 40
_SHORTEST_S = 1.0
_TEXT_TOKENS = 128
"""Length of the trial prompts for a trace that holds texts, whose lengths are unknown."""
_LEAST_TAIL_S, _LONGEST_TAIL_S = 30.0, 120.0
_TURNS_TAIL_S = 600.0
_LONGEST_S = 1e12


class Replay(Struct, frozen=True):
    """The recorded traffic of a sweep."""

    choice: TraceChoice
    summary: TraceSummary

    @property
    def name(self) -> str:
        """Name of the file, for display."""
        return clean(Path(self.choice.path).name, _LONGEST_NAME)

    @property
    def point(self) -> LoadPoint:
        """The point of the level: the mean rate of the trace at the chosen speed."""
        rate = float(f"{self.summary.per_s:.{_DIGITS}g}")
        return LoadPoint(LoadKind.RATE, max(_LEAST_PER_S, rate), trace=self.name)

    @property
    def measured_s(self) -> float:
        """Seconds from the first request to the mean gap after the last one, if answers take no time."""
        summary = self.summary
        if summary.requests < 2:  # noqa: PLR2004 - a gap needs two
            return _SHORTEST_S
        return max(_SHORTEST_S, summary.duration_s * summary.requests / (summary.requests - 1))

    @property
    def tail_s(self) -> float:
        """Seconds after the last request at which requests without an answer are given up.

        Where turns wait for answers, a slow answer must not end the conversations that wait for it.
        """
        if self.summary.waits:
            return _TURNS_TAIL_S
        return min(_LONGEST_TAIL_S, max(_LEAST_TAIL_S, self.summary.duration_s))

    def too_long(self, context_tokens: int | None) -> str | None:
        """Return how many requests are longer than a server's context, as text; None if none is."""
        if context_tokens is None or not (count := self.summary.beyond(context_tokens)):
            return None
        return (
            f"{count:,} of {self.summary.requests:,} requests of {self.name} are longer than its context of "
            f"{context_tokens:,} tokens, prompt and answer together: it will refuse them"
        )

    def settings(self) -> dict[str, Any]:
        """Return the settings of a plan of this replay, by field name; lengths are the means."""
        return {
            "points": (self.point,),
            "arrivals": PATTERN,
            "depths": (),
            "whole": False,
            "prompt_lengths": (self.summary.mean_prompt or _TEXT_TOKENS,),
            "tg": max(1, self.summary.mean_answer),
            "duration_s": self.measured_s,
        }


def find_replay(
    path: str, form: str | None = None, speed: float | None = None, part: str | None = None
) -> Replay:
    """Return the recorded traffic of a file, after reading it once; `part` is that of `parse_range`.

    Raises:
        UsageError: the part or the file cannot be used.
    """
    from sparktop.sweep.plan.traces.formats import TraceFormat  # late: as above
    from sparktop.sweep.plan.traces.summary import summarise
    from sparktop.sweep.plan.traces.trace import TraceChoice

    begin, end = (0.0, math.inf) if part is None else parse_range(part)
    choice = TraceChoice(path, TraceFormat(form) if form else None, speed or 1.0, begin, end)
    return Replay(choice, summarise(choice))


def parse_range(text: str) -> tuple[float, float]:
    """Return (begin, end) in seconds of a part such as "600..1200", "10m..1h", "..90" or "1h..".

    Raises:
        UsageError: the text is not a part, or the part is empty.
    """
    first, last = split_range(text)
    if last is None:
        raise UsageError(f"{_shown(text)} is no part: write it as in 600..1200, 10m..1h or 1h..")
    begin = _seconds(first) if first else 0.0
    end = _seconds(last) if last else math.inf
    if end <= begin:
        raise UsageError(f"{_shown(text)} is empty: it ends before it begins")
    return begin, end


def _seconds(text: str) -> float:
    try:
        return seconds(text, 0.0, _LONGEST_S)
    except UsageError:
        raise UsageError(f"{_shown(text)} is no time: write seconds, or 10m, 2h, 1d") from None


def _shown(text: str) -> str:
    return f"'{clean(text, _LONGEST_NAME)}'"
