"""Parts of a result file for levels that replay recorded traffic (a trace)."""

from __future__ import annotations

from sparktop.graphics.durations import duration_words
from sparktop.sweep.result.parts import Count, Number, Part, Text

_PERCENT = 100.0


class TracePlan(Part):
    """Which part of which file a sweep replayed."""

    name: Text
    """Name of the file, without its folder."""
    path: Text | None = None
    """The file as the user named it; None in anonymous reports."""
    form: Text | None = None
    """Format of the file, as `--trace-format` accepts it."""
    speed: Number = 1.0
    """2 is twice as fast as recorded."""
    from_s: Number = None
    """Seconds after the file's first request at which the part begins; None: it begins with the file."""
    to_s: Number = None
    """Seconds after the file's first request at which the part ends; None: it ends with the file."""
    requests: Count | None = None
    """Requests of the part that are replayed, in each run."""
    duration_s: Number = None
    """Seconds from the first request to the last one, if answers take no time."""
    waits: bool = False
    """True if requests wait for the answers before them in their conversation."""

    @property
    def words(self) -> str:
        """The file, the part and the speed as text: "day.csv, 600..1200 s at 2×, 1,234 requests"."""
        part = "" if self.span is None else f", {self.span} s"
        speed = "" if self.speed in {None, 1.0} else f" at {self.speed:g}×"
        count = "" if self.requests is None else f", {self.requests:,} requests"
        return f"{self.name}{part}{speed}{count}"

    @property
    def span(self) -> str | None:
        """The part as `--trace-range` accepts it, such as "600..1200" or "600.."; None for the whole file."""
        if self.from_s is None and self.to_s is None:
            return None
        end = "" if self.to_s is None else f"{self.to_s:.12g}"
        return f"{self.from_s or 0.0:.12g}..{end}"


class ReplayPhase(Part):
    """One of the equal parts of a replay."""

    from_s: Number = None
    """Begin of the part, in seconds of the file."""
    to_s: Number = None
    requests: Count = 0
    """Requests that were due in the part, in all runs."""
    arrived_per_s: Number = None
    """Requests that were due, per second."""
    completed_per_s: Number = None
    """Requests that completed, per second."""
    ttft_due_p50_ms: Number = None
    """Time to first token from the due time, of the requests that were due in the part."""
    ttft_due_p90_ms: Number = None

    @property
    def words(self) -> str:
        """The part as text: "10 min–20 min"."""
        return f"{duration_words(self.from_s)}–{duration_words(self.to_s)}"


class ReplayResult(Part):
    """What a level that replays recorded traffic shows beside the figures of an open loop."""

    not_due: Count = 0
    """Requests of the trace whose predecessor had not ended when the run was over, so that none was sent."""
    prompt_tokens: Count | None = None
    """Prompt tokens of the answered requests, as the server counted them; None if it does not."""
    cached_tokens: Count | None = None
    """Those of them from the server's prefix cache, as it reports with each answer; None if it does not."""
    server_cached_tokens: Number = None
    """Hits of the servers' prefix caches during the measured runs, in tokens, by their own counters."""
    server_queried_tokens: Number = None
    repeated_percent: Number = None
    """Prompt tokens that earlier requests of the trace hold, in percent: the most that a cache can have."""
    context_tokens: Count | None = None
    """The server's context length; None if unknown."""
    beyond_context: Count | None = None
    """Requests of the trace that are longer, prompt and answer together; None if unknown."""
    phases: tuple[ReplayPhase, ...] = ()
    """Equal parts of the replay; empty for a short one."""

    @property
    def cached_percent(self) -> float | None:
        """Prompt tokens from the prefix cache in percent, by the answers, else by the servers' counters."""
        if self.cached_tokens is not None and self.prompt_tokens:
            return _PERCENT * self.cached_tokens / self.prompt_tokens
        if self.server_cached_tokens is not None and self.server_queried_tokens:
            return _PERCENT * self.server_cached_tokens / self.server_queried_tokens
        return None
