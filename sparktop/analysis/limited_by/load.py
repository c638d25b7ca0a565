"""The load of a server over the polls of a verdict: how often requests waited, and how full it was."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median_high

from msgspec import Struct

from sparktop.analysis.limited_by.evidence import Look, prefill_s

FEWEST_LOOKS = 8
"""With fewer polls there is no verdict."""
_FULL_PERCENT = 95.0
"""The KV cache was this full at least when a request was preempted."""
_PASSING = 2.0
"""Multiple of the requests that arrive during a mean step which may wait for its end: steps that compute
prompts last longer than the mean."""


class Load(Struct, frozen=True):
    """The load of a server over `span_s` seconds. Shares are of polls, 0 to 1; means are over polls."""

    span_s: float
    running: float
    """Mean of running requests."""
    running_most: float
    waiting: float
    """Mean of waiting requests over the polls in which some waited; 0 if none ever did."""
    queued: float
    """Share of the polls in which requests waited."""
    deferred: float
    """Share of the waiting requests that would not run even if there were room."""
    idle: float
    """Share of the polls in which no request ran."""
    kv_percent: float | None
    """Mean KV cache usage over the polls in which requests waited, or over all if none ever did."""
    usual: float
    """Median of running requests over the polls in which some waited; 0 if none ever did."""
    preempted: float | None
    """Preemptions that were reported or, if they are more, seen; None if neither is known."""
    prompt_tokens: float | None
    """Mean computed prompt tokens of a finished request; None if none finished."""
    prompt_tps: float | None
    step_s: float | None
    """Mean seconds from step to step; None if steps are not counted."""
    batch: float | None
    """Mean number of tokens that a step generated."""
    passing: float | None
    """Requests that arrive during one step and wait for its end, on average; None if unknown."""
    prompt_share: float | None = None
    """Share of the time in which prompts were computed, by the server's own count; None if it has none."""
    prefill_s: float | None = None
    """Seconds up to the newest poll in which only prompts were computed; None while tokens are generated."""

    @property
    def is_passing(self) -> bool:
        """Whether the waiting requests are only those that wait for the end of the present step."""
        return self.passing is not None and self.waiting * self.queued <= _PASSING * self.passing


def newest(looks: Sequence[Look], span_s: float) -> Sequence[Look]:
    """Return the looks of the newest `span_s` seconds."""
    if not looks:
        return looks
    since = looks[-1].at - span_s - 0.5
    return [look for look in looks if look.at >= since]


def load_of(looks: Sequence[Look], window_s: float = 30.0) -> Load | None:
    """Return the load over the newest `window_s` seconds of `looks`.

    None if there are fewer than `FEWEST_LOOKS` polls, or if running or waiting requests are not reported.
    """
    recent = newest(looks, window_s)
    known = [look for look in recent if look.running is not None and look.waiting is not None]
    if len(known) < FEWEST_LOOKS or len(known) < len(recent) / 2:
        return None
    running = [look.running or 0.0 for look in known]
    queue = [look for look in known if look.waiting]
    waiting = sum(look.waiting or 0.0 for look in queue)
    able = sum((look.waiting if look.for_capacity is None else look.for_capacity) or 0.0 for look in queue)
    most = max(running)
    kv = [look.kv_percent for look in queue or known if look.kv_percent is not None]
    first, last = known[0], known[-1]
    span_s = last.at - first.at
    steps, generated = _grown(first.steps, last.steps), _grown(first.generated, last.generated)
    prompted, finished = _grown(first.prompted, last.prompted), _grown(first.finished, last.finished)
    return Load(
        span_s=span_s,
        running=sum(running) / len(known),
        running_most=most,
        waiting=waiting / len(queue) if queue else 0.0,
        queued=len(queue) / len(known),
        deferred=max(0.0, 1 - able / waiting) if waiting else 0.0,
        idle=sum(count == 0 for count in running) / len(known),
        kv_percent=sum(kv) / len(kv) if kv else None,
        usual=median_high([look.running or 0.0 for look in queue] or [0.0]),
        preempted=_preempted(known),
        prompt_tokens=prompted / finished if prompted is not None and finished else None,
        prompt_tps=prompted / span_s if prompted is not None and span_s > 0 else None,
        step_s=span_s / steps if steps else None,
        batch=generated / steps if generated is not None and steps else None,
        passing=finished / steps if finished is not None and steps else None,
        prompt_share=_share(_grown(first.prefilled_s, last.prefilled_s), span_s),
        prefill_s=prefill_s(looks),
    )


def _share(part_s: float | None, span_s: float) -> float | None:
    """Return `part_s` as a share of `span_s`, at most 1: prompts of several requests are computed at once."""
    return None if part_s is None or span_s <= 0 else min(1.0, part_s / span_s)


def _preempted(looks: Sequence[Look]) -> float | None:
    """Return the preemptions that were reported, or those that were seen if these are more.

    vLLM reports a preemption when the request runs again, which may take minutes.
    """
    reported = _grown(looks[0].preempted, looks[-1].preempted)
    seen = sum(_seen_preempted(*pair) for pair in pairwise(looks))
    return max(reported or 0.0, seen) if seen else reported


def _seen_preempted(before: Look, after: Look) -> float:
    """Return how many requests went from running to waiting without an end while the KV cache was full."""
    left = (before.running or 0.0) - (after.running or 0.0)
    more = (after.waiting or 0.0) - (before.waiting or 0.0)
    ended = _grown(before.finished, after.finished)
    if ended is None or after.kv_percent is None or not after.running or min(left - ended, more) <= 0:
        return 0.0
    held_before = after.kv_percent * (1 + left / after.running)
    return min(left - ended, more) if held_before >= _FULL_PERCENT else 0.0


def _grown(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None or after < before else after - before
