"""How many draft tokens pay: what the last positions of a draft add, against what they cost.

A step generates 1 + Σ p(i) tokens for a request, where p(i) is the share of drafts whose token at position i
was accepted; these are counted, so they hold for any shorter draft too. What a position costs is known
only where this server was seen to make steps of the same batch with shorter drafts, or without. Between two
lengths that were seen a step's time is interpolated: each position costs one pass of the draft model, and
makes the model check one more token for each request.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from statistics import median

from sparktop.analysis.yardsticks import MOST_PROMPT, batch_key
from sparktop.model.event import Finding, FindingKind, Severity, Sure
from sparktop.model.explained import FINDINGS
from sparktop.model.snapshot import BackendView, Situation

KIND = FindingKind.DRAFT_LENGTH
MARGIN, ALERT_MARGIN = 0.1, 0.2
"""Gain from which on another length is named, and is an alert."""
_STAYS = 0.5
"""Share of these down to which it stays so: acceptance varies from sample to sample."""
ENOUGH, _KEPT = 20, 60
"""Samples of a batch with a length of drafts that a verdict needs; those that are kept."""
_DRAFTS, _NONE = 0.9, 0.02
"""Drafts per step and request: at least this many count as steps with drafts, at most this few as without."""
_ROUNDING = 0.02
"""Share by which a mean length may differ from a whole number."""
_ENOUGH_DRAFTS = 200.0
"""Drafts in the rate window from which on it is said that drafts give nothing."""
_NOTHING = 0.02
"""Accepted tokens per draft up to which the drafts give nothing."""
_UNJUDGED_S = 300.0
"""Seconds for which a finding stays while the batch is one of which no other length is known."""
_MOST_BATCHES = 64
"""Batches remembered of a server."""
_ANY_TOKENS = 1.0
"""Tokens of a step for the key of every batch: drafts change that number, and must not tell batches apart."""


def best_length(
    percents: Sequence[float], step_ms: float, other_length: int, other_ms: float
) -> tuple[int, float, float, float] | None:
    """Return the length of drafts with the most tokens per second, its relative gain, and what it saves.

    They are (length, 0 for none; gain, 0.1 is 10 % more; tokens that a step generates less for a request; ms
    that a step is shorter); None if the present length is the best.

    `percents` has the acceptance by position of today's drafts, of length k, whose steps take `step_ms`.
    Steps with drafts of the shorter `other_length` o take `other_ms`. A step of length j takes
    T(j) = T(k) - (k - j) c, where c = (T(k) - T(o)) / (k - o), and generates E(j) = 1 + Σ p(i), i < j. The
    gain is E(j) T(k) / (E(k) T(j)) - 1.
    """
    length = len(percents)
    position_ms = (step_ms - other_ms) / (length - other_length)
    tokens = [1 + sum(percents[:count]) / 100 for count in range(length + 1)]

    def gain(count: int) -> float:
        return tokens[count] * step_ms / (tokens[length] * (step_ms - (length - count) * position_ms)) - 1

    best = max(range(other_length, length), key=gain)
    better = best, gain(best), tokens[length] - tokens[best], (length - best) * position_ms
    return better if gain(best) > 0 else None


class _Steps:
    """Step times and token rates of one batch with drafts of one length."""

    def __init__(self) -> None:
        self.ms: deque[float] = deque(maxlen=_KEPT)
        self.rates: deque[float] = deque(maxlen=_KEPT)
        self.restarts = 0
        """Restarts of the server at the newest sample."""


class DraftLengthRule:
    """Finds that a server's drafts are too long, or not worth their time.

    It keeps its steps by batch and length of drafts, also those from before a restart.
    """

    def __init__(self) -> None:
        """Start without steps."""
        self._model: tuple[str | None, str | None] = (None, None)
        self._steps: dict[tuple[int, int, int], dict[int, _Steps]] = {}
        self._generated: float | None = None
        self._compared: tuple[float, int | None, int] = (-math.inf, None, 0)
        """(time, length of drafts, restarts) when another length was found to be better."""
        self._found: tuple[Finding, ...] = ()

    def look(self, now: Situation, view: BackendView) -> tuple[Finding, ...]:
        """Return what holds now, if the server counts its steps."""
        if view.steps_per_s is None:
            return ()
        if view.generation_tokens == self._generated or not view.ok:
            return self._found
        self._generated = view.generation_tokens
        if (view.model, view.version) != self._model:
            self._model = view.model, view.version
            self._steps.clear()
        self._found = tuple(self._findings(now.at, view))
        return self._found

    def _findings(self, at: float, view: BackendView) -> Iterator[Finding]:
        """Keep the sample, and yield what is known of drafts.

        That is the comparison with another length, which stays for a while where it cannot be repeated; else
        that drafts give nothing.
        """
        length = draft_length(view)
        batch = self._keep_sample(view, length)
        before = next((finding for finding in self._found if finding.values), None)
        better = None if batch is None or length is None else _better_length(view, length, batch, before)
        if better is None and before is not None and not _is_comparable(batch, length):
            known_at, known_length, restarts = self._compared
            # Steps without drafts (0), or of which only some have them (None), show no other setting.
            is_same = length in {None, 0, known_length} and restarts == view.restarts
            better = before if is_same and at - known_at < _UNJUDGED_S else None
        elif better is not None:
            self._compared = at, length, view.restarts
        if better is not None:
            yield better
            return
        per_draft = view.spec_accepted_per_draft
        drafts = (view.spec_drafts_per_s or 0.0) * (view.rate_window_s or 0.0)
        if per_draft is not None and per_draft <= _NOTHING and drafts >= _ENOUGH_DRAFTS:
            line = f"drafts give nothing: {1 + per_draft:.2f} tokens a step"
            yield Finding(KIND, view.name, line, fix=FINDINGS[KIND].advice("none is accepted"))

    def _keep_sample(self, view: BackendView, length: int | None) -> dict[int, _Steps] | None:
        """Keep a sample; return the samples of similar batches by length of drafts, None if it is unusable.

        Their numbers of requests and the fill of their KV caches are of one class; their tokens may differ.
        """
        rate, running = view.generation_tps, view.running
        if length is None or not rate or not running or view.step_ms is None:
            return None
        if (view.prompt_tps or 0.0) > MOST_PROMPT * rate:
            return None
        key = batch_key(running, _ANY_TOKENS, view.kv_cache_percent)
        if key not in self._steps and len(self._steps) >= _MOST_BATCHES:
            self._steps.pop(next(iter(self._steps)))
        batch = self._steps.setdefault(key, {})
        steps = batch.setdefault(length, _Steps())
        steps.ms.append(view.step_ms)
        steps.rates.append(rate)
        steps.restarts = view.restarts
        return batch


def draft_length(view: BackendView) -> int | None:
    """Return the tokens in each draft, 0 where steps have none; None if only some steps have drafts."""
    if not view.running or not view.steps_per_s:
        return None
    # Steps are summed over the lanes, of which each has its part of the requests.
    drafts = (view.spec_drafts_per_s or 0.0) / view.steps_per_s * max(1, len(view.lanes)) / view.running
    if drafts <= _NONE:
        return 0
    length = view.spec_draft_length
    is_whole = length is not None and abs(length - round(length)) <= _ROUNDING * length
    return round(length) if drafts >= _DRAFTS and is_whole and length is not None else None


def _measured_lengths(batch: dict[int, _Steps]) -> list[int]:
    """Return the lengths of drafts of which there are enough samples."""
    return [length for length, steps in batch.items() if len(steps.ms) >= ENOUGH]


def _is_comparable(batch: dict[int, _Steps] | None, length: int | None) -> bool:
    """Return whether steps of a batch with drafts of this length and with shorter ones are known.

    Without drafts (0) its own steps are enough.
    """
    lengths = _measured_lengths(batch) if batch is not None else []
    return length in lengths and (not length or min(lengths) < length)


def _better_length(
    view: BackendView, length: int, batch: dict[int, _Steps], before: Finding | None
) -> Finding | None:
    """Return the finding that shorter drafts, or none, give more; None if that is not shown.

    `before` is what was found at the sample before.
    """
    margin = MARGIN if before is None else _STAYS * MARGIN
    alert_margin = ALERT_MARGIN if before is None or before.severity is None else _STAYS * ALERT_MARGIN
    lengths = _measured_lengths(batch)
    if length:
        longer, shorter = length, max((other for other in lengths if other < length), default=length)
    else:  # without drafts at the moment: the longest that were measured, against these steps
        longer, shorter = max(lengths, default=0), 0
    if longer not in lengths or shorter not in lengths or shorter == longer:
        return None
    long_steps, short_steps = batch[longer], batch[shorter]
    long_ms, short_ms, running = median(long_steps.ms), median(short_steps.ms), view.running or 0.0
    sure = Sure.KNOWN if short_steps.restarts == view.restarts else Sure.LIKELY
    values = {
        "draft_length": float(longer),
        "step_ms": long_ms,
        "other_length": float(shorter),
        "other_step_ms": short_ms,
        "limit_share": MARGIN,
    }
    times = f"{long_ms:.1f} ms with {longer} draft tokens, {short_ms:.1f} ms with {shorter}"
    steps_row = ("steps", f"{times}, {running:.0f} requests")
    percents = [percent for percent in view.spec_accept_by_position[:length] if percent is not None]
    # Other drafts than those of these steps, such as none at the moment, do not show which positions pay.
    gain = best_length(percents, long_ms, shorter, short_ms) if len(percents) == longer else None
    best, share, lost_tokens, saved_ms = gain or (longer, 0.0, 0.0, 0.0)
    if shorter == 0 and best in {0, longer}:
        rate, rate_without = median(long_steps.rates), median(short_steps.rates)
        if rate_without < (1 + margin) * rate:
            return None
        share = rate_without / rate - 1
        line = f"drafts cost more than they give: {rate:.0f} tok/s with them, {rate_without:.0f} without"
        line, fix, best = f"{line}, at {running:.0f} requests", FINDINGS[KIND].advice("none is faster"), 0
    elif share < margin:
        return None
    else:
        positions = f"position {longer} adds" if best + 1 == longer else f"positions {best + 1}–{longer} add"
        costs = "costs" if best + 1 == longer else "cost"
        # What a narrow screen cuts off comes last.
        drafts = f"drafts of {best} token{'s' if best > 1 else ''}"
        line = f"{drafts} would give about {100 * share:.0f} % more tok/s: {positions} {lost_tokens:.2f}"
        line += f" tokens a step and {costs} {saved_ms:.0f} ms"
        fix = FINDINGS[KIND].advice("shorter is faster", K=best)
        sure = sure if best == shorter else Sure.LIKELY  # its step time is interpolated
    severity = Severity.INFO if share >= alert_margin else None
    values |= {"best_length": float(best), "gain_percent": 100 * share}
    return Finding(
        KIND, view.name, line, fix=fix, sure=sure, severity=severity, evidence=(steps_row,), values=values
    )
