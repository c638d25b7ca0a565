"""Recognises a metrics page that comes from a cache: it stands for seconds, then everything on it jumps.

A caching proxy answers several polls with one page. The counters then seem to stand while requests run, and
a rate between two such pages is wrong by up to a whole period. A live page cannot repeat byte by byte while
its server uses CPU time, which `process_cpu_seconds_total` on it counts. SGLang, whose figures change once in
many steps, other pages without this counter, and servers that hardly use CPU time or make few tokens (a step
of prefill may take seconds) are recognised by the header `Age` alone.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise

from msgspec.structs import replace

from sparktop.model.engine import EngineSample

_CHANGES = 4
"""Changes of the page that are compared: three spans between them."""
_LEAST_SPAN_S, _LEAST_POLLS = 1.9, 2.5
"""A page that changes more often than that, in seconds or in polls, is not told from a live one."""
_UNEVEN_POLLS, _UNEVEN_SHARE = 1.5, 0.1
"""How far spans between two changes may differ: that many poll intervals and that share of the longest."""
_LEAST_CPU_S = 0.03
"""CPU seconds a poll, three ticks of the kernel's clock, from which on a live page cannot repeat."""
_LEAST_TOKENS = 4
"""Tokens for each running request between two changes: fewer may come from one long step, as of prefill."""
_LIVE_AGAIN = 2
"""Changes in a row, each a poll after the one before, after which a page counts as live again."""
_LATE = 1.5
"""A page that has not changed for so many periods is read as a new one: its server may do nothing."""


class PageChanges:
    """When the page of one server changed, and how often it does if it comes from a cache."""

    def __init__(self) -> None:
        """Start without a page."""
        self.every_s: float | None = None
        """Mean seconds between two changes of a page from a cache; None for a live page, or before a span."""
        self.cached = False
        """Whether the page comes from a cache."""
        self.changes: deque[EngineSample] = deque(maxlen=_CHANGES)
        """The first sample of each of the newest pages."""
        self._page: int | None = None
        """Hash of the newest page: the page itself would be most of what is kept of a server."""
        self._accepted_at = 0.0

    def clear(self) -> None:
        """Forget the pages of a process that has ended."""
        self.changes.clear()
        self.every_s, self.cached = None, False

    @property
    def words(self) -> str | None:
        """That the page comes from a cache, as text; None for a live page."""
        if not self.cached:
            return None
        if self.every_s is None:
            return "the page comes from a cache"
        return f"the page changes every {round(2 * self.every_s) / 2:g} s"

    def is_repeat(self, sample: EngineSample, interval_s: float) -> bool:
        """Note a sample, polled every `interval_s` seconds; return whether it is the page from before again.

        Only a page from a cache repeats. One that has stood for much more than its period is no repeat.
        """
        before, self._page = self._page, None if sample.page is None else hash(sample.page)
        if self._page is None:
            self.clear()
            return False
        old = sample.cache_age_s is not None and sample.cache_age_s >= 1.0
        if self._page != before:
            self.changes.append(replace(sample, page=None))
            self._judge(interval_s, old=old)
            self._accepted_at = sample.at
            return False
        self.cached = self.cached or old
        stood_s = sample.at - self._accepted_at
        if self.cached and (old or (self.every_s is not None and stood_s < _LATE * self.every_s)):
            return True
        self._accepted_at = sample.at
        return False

    def _judge(self, interval_s: float, *, old: bool) -> None:
        """Judge whether the page comes from a cache, at a change of it."""
        spans = [later.at - earlier.at for earlier, later in pairwise(self.changes)]
        least_s = max(_LEAST_SPAN_S, _LEAST_POLLS * interval_s)
        long = [span >= least_s for span in spans]
        if self.cached or old:
            self.cached = old or len(long) < _LIVE_AGAIN or any(long[-_LIVE_AGAIN:])
        else:
            self.cached = len(spans) == _CHANGES - 1 and all(long) and self._jumps(spans, interval_s)
        spans = [span for span, is_long in zip(spans, long, strict=True) if is_long]
        self.every_s = sum(spans) / len(spans) if self.cached and spans else None

    def _jumps(self, spans: list[float], interval_s: float) -> bool:
        """Return whether the server made tokens and used CPU time between all changes, which come evenly."""
        even = max(spans) - min(spans) <= _UNEVEN_POLLS * interval_s + _UNEVEN_SHARE * max(spans)
        return even and all(_worked(*pair, interval_s) for pair in pairwise(self.changes))


def _worked(earlier: EngineSample, later: EngineSample, interval_s: float) -> bool:
    if earlier.cpu_s is None or later.cpu_s is None:
        return False
    before, after = (sum(lane.generation_tokens or 0.0 for lane in one.lanes) for one in (earlier, later))
    running = max(sum(lane.running or 0.0 for lane in one.lanes) for one in (earlier, later))
    polls = (later.at - earlier.at) / interval_s
    used_cpu = later.cpu_s - earlier.cpu_s >= _LEAST_CPU_S * polls
    return running > 0 and after - before >= _LEAST_TOKENS * running and used_cpu
