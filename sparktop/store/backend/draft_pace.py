"""Compares a backend's speed with and without speculative decoding, where it was seen both ways.

A server may stop drafting tokens while many requests run, and start again. Only then can a viewer know
whether the drafts are worth their time: how long a step takes without them is not on the metrics page.
"""

from __future__ import annotations

import math
from collections import deque
from statistics import median

from sparktop.model.snapshot import BackendView
from sparktop.rates import Window

_DRAFTS, _NONE = 0.9, 0.02
"""Drafts per step and request: at least this many count as steps with drafts, at most this few as without."""
_ENOUGH = 20
"""Samples with as many requests, with drafts and without, that a verdict needs."""
_KEPT = 60
_MARGIN = 0.1
"""Relative difference of the medians from which on one is faster."""
_MOST_PROMPT = 0.5
"""Prompt tokens per generated token up to which samples are compared: prefill would hide the difference."""
_FEW_DRAFTS = 200.0
_NOTHING = 0.02
"""Accepted tokens per draft up to which the drafts give nothing."""
_FINE = 4
"""Buckets of request counts per doubling."""


class DraftPace:
    """The token rates of a backend with and without drafts, by the number of running requests."""

    def __init__(self) -> None:
        """Start without any samples."""
        self._rates: dict[tuple[int, bool], deque[float]] = {}

    def clear(self) -> None:
        """Forget all samples, because the server restarted or another server answers."""
        self._rates.clear()

    def verdict(self, view: BackendView, window: Window, window_s: float) -> str | None:
        """Note the newest figures; return why the drafts are not worth their time, None if that is not shown.

        `window_s` is the length in seconds of the window of the rates in `view`.
        """
        words = self._measured(view, window, window_s)
        drafted = window.counted("spec_drafts", window_s)
        per_draft = view.spec_accepted_per_draft
        few = drafted is None or drafted[0] < _FEW_DRAFTS or per_draft is None
        if words is not None or few or per_draft is None or per_draft > _NOTHING:
            return words
        return f"drafts give nothing: {1 + per_draft:.2f} tokens a step"

    def _measured(self, view: BackendView, window: Window, window_s: float) -> str | None:
        per_step = window.ratio("spec_drafts", "steps", window_s)
        rate, running = view.generation_tps, view.running
        if per_step is None or not rate or not running:
            return None
        each = per_step * max(1, len(view.lanes)) / running
        with_drafts = each >= _DRAFTS
        if (view.prompt_tps or 0.0) > _MOST_PROMPT * rate or not (with_drafts or each <= _NONE):
            return None
        bucket = round(_FINE * math.log2(max(1.0, running)))
        self._rates.setdefault((bucket, with_drafts), deque(maxlen=_KEPT)).append(rate)
        both = [self._rates.get((bucket, drafts), ()) for drafts in (True, False)]
        if min(map(len, both)) < _ENOUGH:
            return None
        drafting, plain = map(median, both)
        if plain < (1 + _MARGIN) * drafting:
            return None
        return (
            f"drafts cost more than they give: {drafting:.0f} tok/s with them, {plain:.0f} without, "
            f"at {running:.0f} requests"
        )
