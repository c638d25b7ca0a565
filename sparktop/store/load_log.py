"""The load of one backend, or of one lane, over the last minutes: the input of its group's balance."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from sparktop.analysis.balance.load_grid import LoadTrack, load_track
from sparktop.analysis.roles import Work
from sparktop.model.engine import Histogram, LaneSample
from sparktop.model.series import HistoryTable
from sparktop.model.snapshot import LaneHistory
from sparktop.rates.lane_sums import lane_sum
from sparktop.rates.quantiles import LEAST_OBSERVATIONS, difference, histogram_quantile, merge

LONGEST_S = 600.0
"""The widest window that is judged, in seconds."""
CAPACITY = 2400
"""Points kept: the widest window at 4 Hz. With 300 pieces and 120 histograms at most 200 kB."""
_GAUGES = ("running", "waiting", "generation_tps")
_COUNTS = ("finished", "failed", "aborted", "prompt_tokens", "generation_tokens")
"""Requests and tokens since the first sample."""
_ANSWERS, _TOKENS = "answers", "tokens"
FAILED_REASONS, ABORTED_REASONS = frozenset({"error", "failure"}), frozenset({"abort"})
"""Reasons of a request's end other than success: vLLM's and TGI's."""
_LIFE_EVERY_S = 5.0
_PIECE_S = 2.0
"""Finished answers are grouped over this many seconds: enough pieces to estimate the variation of lengths."""
_LIVES_KEPT = math.ceil(LONGEST_S / _LIFE_EVERY_S) + 2
ABORTS_THAT_COUNT = 0.02
"""Share of the finished requests: fewer aborts are clients that hung up."""
_LIFE_WINDOW_S, _ENOUGH_LIVES = 120.0, 20
"""The life of requests follows the load, so the newest are used alone if there are enough."""
_FEWEST_LOOKS, _FEWEST_ANSWERS = 8, 16
"""With fewer pieces or answers, the spread of lengths would be a guess."""


class LoadLog:
    """The load that one backend reported, sample by sample: gaps stay gaps, restarts count nothing."""

    def __init__(self) -> None:
        """Start empty."""
        self._table = HistoryTable((*_GAUGES, *_COUNTS), CAPACITY)
        self._live = True
        """False where the token rate does not describe the moment of a sample."""
        self._reported: dict[str, float] = {}
        """The counters on the newest page."""
        self._totals: dict[str, float] = {}
        self._lives: deque[tuple[float, Histogram]] = deque(maxlen=_LIVES_KEPT)
        """The lives of all requests so far, recorded every few seconds."""
        self._life: Histogram | None = None
        self._answers: deque[tuple[float, float, float]] = deque(maxlen=math.ceil(LONGEST_S / _PIECE_S))
        """(time, answers finished since the previous entry, their tokens in total)."""

    def note(
        self,
        at: float,
        lanes: Sequence[LaneSample],
        generation_tps: float | None,
        *,
        continues: bool,
        live: bool = True,
    ) -> None:
        """Add a sample of `lanes`; `continues` is False when another process answers than before.

        A rate that is not `live` is drawn, but not used for the balance.
        """
        self._live = live
        reported = _counts(lanes)
        if continues:
            for name in reported.keys() & set(_COUNTS):
                step = max(0.0, reported[name] - self._reported.get(name, reported[name]))
                self._totals[name] = self._totals.get(name, 0.0) + step
            self._note_answers(at, reported)
        else:
            # What this process counted since the previous sample is unknown.
            self._totals = dict.fromkeys(reported.keys() & set(_COUNTS), 0.0) | self._totals
            self._lives.clear()
        self._reported = reported
        self._life = merge([lane.e2e for lane in lanes if lane.e2e is not None])
        if self._life is not None and (not self._lives or at - self._lives[-1][0] >= _LIFE_EVERY_S):
            self._lives.append((at, self._life))
        gauges = (lane_sum(lanes, lambda lane: lane.running), lane_sum(lanes, lambda lane: lane.waiting))
        self._table.append(at, dict(zip(_GAUGES, (*gauges, generation_tps), strict=True)) | self._totals)

    def gap(self, at: float) -> None:
        """Record that there was no answer."""
        self._table.append(at, {})

    def history(self) -> LaneHistory:
        """Return requests and tokens per second over time."""
        kept = self._table.series(*_GAUGES)
        return LaneHistory(kept["running"], kept["waiting"], kept["generation_tps"])

    def track(self, name: str, since: float, *, slots: int | None, errors: float | None) -> LoadTrack:
        """Return the input of the balance, from `since` on, without samples that report no load."""
        failed = None if errors is None else round(errors)
        kept = self.history()
        track = load_track(
            name, kept.running, kept.waiting, kept.generation_tps, since_s=since, slots=slots, errors=failed
        )
        track = replace(track, arrived=self._arrived(track, since))
        if not self._live:
            track = replace(track, generation_tps=None)
        if not math.isnan(sum(track.running)):
            return track
        reported = [index for index, load in enumerate(track.running) if not math.isnan(load)]

        def only_reported(values: Sequence[float] | None) -> list[float] | None:
            return None if values is None else [values[index] for index in reported]

        return replace(
            track,
            times_s=[track.times_s[index] for index in reported],
            running=[track.running[index] for index in reported],
            waiting=only_reported(track.waiting),
            generation_tps=only_reported(track.generation_tps),
            arrived=only_reported(track.arrived),
        )

    def _arrived(self, track: LoadTrack, since: float) -> list[float] | None:
        """Return ended plus present requests at each point of a track; None where ends are not counted."""
        _, ended = self._table.series("finished")["finished"].arrays(since)
        if len(ended) != len(track.times_s) or all(map(math.isnan, ended)):
            return None
        there = [track.running, *([] if track.waiting is None else [track.waiting])]
        return [sum(row) for row in zip(ended, *there, strict=True)]

    def counted(self, since: float) -> dict[str, float]:
        """Return the growth of each total from `since` on, without totals that are not reported."""
        kept = self._table.series()
        grown: dict[str, float] = {}
        for name in _COUNTS:
            ends = kept[name].ends(since)
            if ends is not None:
                grown[name] = ends[1] - ends[0]
        return grown

    def work(self, since: float) -> Work:
        """Return the requests finished and the tokens taken in and generated from `since` on."""
        counted = self.counted(since)
        return Work(counted.get("finished"), counted.get("prompt_tokens"), counted.get("generation_tokens"))

    def errors(self, since: float) -> float | None:
        """Return the requests that failed from `since` on; None where failures are not counted.

        Aborted requests are included where there are many: a router that gives up on a backend aborts its
        request.
        """
        counted = self.counted(since)
        failed, aborted = counted.get("failed"), counted.get("aborted", 0.0)
        if failed is None:
            return None
        return failed + (aborted if aborted >= ABORTS_THAT_COUNT * counted["finished"] else 0.0)

    def arrived(self, since: float) -> float | None:
        """Return the requests that arrived from `since` on: those that ended, plus the growth of the rest."""
        ended = self.counted(since).get("finished")
        if ended is None:
            return None
        kept = self.history()
        gauges = [gauge.ends(since) or (0.0, 0.0) for gauge in (kept.running, kept.waiting)]
        return max(0.0, ended + sum(last - first for first, last in gauges))

    def lives(self, since: float) -> Histogram | None:
        """Return a histogram of the lives of requests that ended from `since` on; None where unknown."""
        before = next((life for at, life in self._lives if at >= since), None)
        return difference(self._life, before) if self._life is not None and before is not None else None

    def answers(self, since: float) -> list[tuple[float, float]]:
        """Return (answers, their tokens in total) for each short period since `since` in which some ended."""
        return [(number, tokens) for at, number, tokens in self._answers if at >= since]

    def _note_answers(self, at: float, reported: Mapping[str, float]) -> None:
        """Add the answers since the previous sample to the newest piece, or to a new one."""
        number = reported.get(_ANSWERS, 0.0) - self._reported.get(_ANSWERS, math.inf)
        tokens = reported.get(_TOKENS, 0.0) - self._reported.get(_TOKENS, math.inf)
        if not (number > 0 and tokens > 0):
            return
        if self._answers and at - self._answers[-1][0] < _PIECE_S:
            began, before, length = self._answers.pop()
            self._answers.append((began, before + number, length + tokens))
        else:
            self._answers.append((at, number, tokens))


def median_life_s(logs: Iterable[LoadLog], now: float) -> float | None:
    """Return the median life of a group's requests in seconds; None where too few ended or lives are unknown.

    Computed from merged buckets, with linear interpolation. Where the mean lies in the median's bucket it is
    returned instead, because it has no bucket error.
    """
    logs = list(logs)
    merged: Histogram | None = None
    for window_s in (_LIFE_WINDOW_S, LONGEST_S):
        reported = [life for log in logs if (life := log.lives(now - window_s)) is not None]
        merged = merge(reported)
        if merged is not None and merged.count >= _ENOUGH_LIVES:
            break
    if merged is None or merged.count < LEAST_OBSERVATIONS:
        return None
    mean = merged.sum / merged.count
    middle = histogram_quantile(merged, 0.5)
    if middle is None or middle.below or middle.above:
        return mean
    low = max((bound for bound in merged.bounds if bound < middle.seconds), default=0.0)
    high = min(bound for bound in merged.bounds if bound >= middle.seconds)
    return mean if low <= mean <= high else middle.seconds


def length_variation(logs: Iterable[LoadLog], since: float) -> float | None:
    """Return standard deviation over mean of the answers' lengths; None where too few are known.

    Computed between pieces: if n answers of a piece have the mean m, then Σ n (m - mean)² / (pieces - 1)
    estimates the variance of single answers (analysis of variance), without an error from buckets.
    """
    steps = [step for log in logs for step in log.answers(since)]
    number = sum(count for count, _ in steps)
    if len(steps) < _FEWEST_LOOKS or number < _FEWEST_ANSWERS:
        return None
    mean = sum(tokens for _, tokens in steps) / number
    if mean <= 0:
        return None
    variance = sum(count * (tokens / count - mean) ** 2 for count, tokens in steps) / (len(steps) - 1)
    return math.sqrt(variance) / mean


def _counts(lanes: Sequence[LaneSample]) -> dict[str, float]:
    reported: dict[str, float] = {}
    reasons = [lane.finished for lane in lanes if lane.finished]
    if reasons:
        reported["finished"] = sum(sum(one.values()) for one in reasons)
        if any(not (FAILED_REASONS | ABORTED_REASONS).isdisjoint(one) for one in reasons):
            reported["failed"] = sum(one.get(name, 0.0) for one in reasons for name in FAILED_REASONS)
            reported["aborted"] = sum(one.get(name, 0.0) for one in reasons for name in ABORTED_REASONS)
    tokens = {
        "prompt_tokens": lane_sum(lanes, lambda lane: lane.prompt_tokens),
        "generation_tokens": lane_sum(lanes, lambda lane: lane.generation_tokens),
    }
    reported |= {name: count for name, count in tokens.items() if count is not None}
    answers = [lane.answer_tokens for lane in lanes if lane.answer_tokens is not None]
    if answers:
        reported[_ANSWERS] = sum(one.count for one in answers)
        reported[_TOKENS] = sum(one.sum for one in answers)
    return {name: value for name, value in reported.items() if math.isfinite(value)}
