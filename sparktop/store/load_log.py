"""The load of one backend, or of one lane, over the last minutes: what its group's balance is judged by."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from sparktop.analysis.load_grid import LoadTrack, load_track
from sparktop.analysis.roles import Work
from sparktop.model.engine import Histogram, LaneSample
from sparktop.model.series import HistoryTable
from sparktop.model.snapshot import LaneHistory
from sparktop.rates.lane_sums import lane_sum
from sparktop.rates.quantiles import LEAST_OBSERVATIONS, difference, histogram_quantile, merge

LONGEST_S = 600.0
"""The widest window that is judged."""
CAPACITY = 2400
"""Points: the widest window at 4 Hz. With 300 pieces and 120 histograms 200 kB at most."""
_GAUGES = ("running", "waiting", "generation_tps")
_COUNTS = ("finished", "failed", "aborted", "prompt_tokens", "generation_tokens")
"""Requests and tokens since watching began."""
_ANSWERS, _TOKENS = "answers", "tokens"
FAILED_REASONS, ABORTED_REASONS = frozenset({"error", "failure"}), frozenset({"abort"})
"""Reasons for which a request ends that are no good end: vLLM's and TGI's."""
_LIFE_EVERY_S = 5.0
_PIECE_S = 2.0
"""Answers are taken together over this time: enough pieces to tell one length from many."""
_LIVES_KEPT = math.ceil(LONGEST_S / _LIFE_EVERY_S) + 2
ABORTS_THAT_COUNT = 0.02
"""Share of the finished requests: fewer are clients that hung up."""
_LIFE_WINDOW_S, _ENOUGH_LIVES = 120.0, 20
"""How long a request lives follows the load, so the newest are asked first, if they are enough."""
_FEWEST_LOOKS, _FEWEST_ANSWERS = 8, 16
"""Below that the spread of lengths is a guess."""


class LoadLog:
    """What one backend told of its load, look by look: gaps stay gaps, restarts count nothing."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._table = HistoryTable((*_GAUGES, *_COUNTS), CAPACITY)
        self._live = True
        """False where the token rate tells nothing of the moment of a look."""
        self._told: dict[str, float] = {}
        """The counters as they stood on the newest page."""
        self._totals: dict[str, float] = {}
        self._lives: deque[tuple[float, Histogram]] = deque(maxlen=_LIVES_KEPT)
        """Now and then, the lives of all requests so far."""
        self._life: Histogram | None = None
        self._answers: deque[tuple[float, float, float]] = deque(maxlen=math.ceil(LONGEST_S / _PIECE_S))
        """When, how many answers were finished since the entry before, and their tokens in all."""

    def note(
        self,
        at: float,
        lanes: Sequence[LaneSample],
        generation_tps: float | None,
        *,
        continues: bool,
        live: bool = True,
    ) -> None:
        """Add one look at `lanes`; `continues` is false where another process answers than before.

        A rate that is not `live` is drawn, and nothing is concluded from it.
        """
        self._live = live
        told = _counts(lanes)
        if continues:
            for name in told.keys() & set(_COUNTS):
                step = max(0.0, told[name] - self._told.get(name, told[name]))
                self._totals[name] = self._totals.get(name, 0.0) + step
            self._note_answers(at, told)
        else:
            # Nobody knows what this process counted since the look before.
            self._totals = dict.fromkeys(told.keys() & set(_COUNTS), 0.0) | self._totals
            self._lives.clear()
        self._told = told
        self._life = merge([lane.e2e for lane in lanes if lane.e2e is not None])
        if self._life is not None and (not self._lives or at - self._lives[-1][0] >= _LIFE_EVERY_S):
            self._lives.append((at, self._life))
        gauges = (lane_sum(lanes, lambda lane: lane.running), lane_sum(lanes, lambda lane: lane.waiting))
        self._table.append(at, dict(zip(_GAUGES, (*gauges, generation_tps), strict=True)) | self._totals)

    def gap(self, at: float) -> None:
        """Note that there was no answer."""
        self._table.append(at, {})

    def history(self) -> LaneHistory:
        """Give requests and tokens per second over time."""
        kept = self._table.series()
        return LaneHistory(kept["running"], kept["waiting"], kept["generation_tps"])

    def track(self, name: str, since: float, *, slots: int | None, errors: float | None) -> LoadTrack:
        """Give what is judged, from `since` on: looks that told nothing are no looks there."""
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
        told = [index for index, load in enumerate(track.running) if not math.isnan(load)]

        def only_told(values: Sequence[float] | None) -> list[float] | None:
            return None if values is None else [values[index] for index in told]

        return replace(
            track,
            times_s=[track.times_s[index] for index in told],
            running=[track.running[index] for index in told],
            waiting=only_told(track.waiting),
            generation_tps=only_told(track.generation_tps),
            arrived=only_told(track.arrived),
        )

    def _arrived(self, track: LoadTrack, since: float) -> list[float] | None:
        """Give what ended and what is there at each look of a track; None where nobody counts what ended."""
        _, ended = self._table.series()["finished"].arrays(since)
        if len(ended) != len(track.times_s) or all(map(math.isnan, ended)):
            return None
        there = [track.running, *([] if track.waiting is None else [track.waiting])]
        return [sum(row) for row in zip(ended, *there, strict=True)]

    def counted(self, since: float) -> dict[str, float]:
        """Give by how much each total grew from `since` on; without those that are not told."""
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
        """Give the requests that failed from `since` on; None where nobody counts them.

        Aborted ones are among them where they are many: a router that gives up on a backend aborts.
        """
        counted = self.counted(since)
        failed, aborted = counted.get("failed"), counted.get("aborted", 0.0)
        if failed is None:
            return None
        return failed + (aborted if aborted >= ABORTS_THAT_COUNT * counted["finished"] else 0.0)

    def arrived(self, since: float) -> float | None:
        """Give the requests that came from `since` on: those that ended, and by how many more are there."""
        ended = self.counted(since).get("finished")
        if ended is None:
            return None
        kept = self.history()
        gauges = [gauge.ends(since) or (0.0, 0.0) for gauge in (kept.running, kept.waiting)]
        return max(0.0, ended + sum(last - first for first, last in gauges))

    def lives(self, since: float) -> Histogram | None:
        """Give how long the requests lived that ended from `since` on; None where nobody tells."""
        before = next((life for at, life in self._lives if at >= since), None)
        return difference(self._life, before) if self._life is not None and before is not None else None

    def answers(self, since: float) -> list[tuple[float, float]]:
        """Give (answers, their tokens in all) for each short time since `since` that saw some end."""
        return [(number, tokens) for at, number, tokens in self._answers if at >= since]

    def _note_answers(self, at: float, told: Mapping[str, float]) -> None:
        """Count the answers since the look before into the newest piece, or into a new one."""
        number = told.get(_ANSWERS, 0.0) - self._told.get(_ANSWERS, math.inf)
        tokens = told.get(_TOKENS, 0.0) - self._told.get(_TOKENS, math.inf)
        if not (number > 0 and tokens > 0):
            return
        if self._answers and at - self._answers[-1][0] < _PIECE_S:
            began, before, length = self._answers.pop()
            self._answers.append((began, before + number, length + tokens))
        else:
            self._answers.append((at, number, tokens))


def median_life_s(logs: Iterable[LoadLog], now: float) -> float | None:
    """Give the median life of the requests of a group; None where too few ended or nobody tells.

    From merged buckets, linear inside one. Where the mean lies in the median's bucket it is given instead: it
    has no bucket error.
    """
    logs = list(logs)
    merged: Histogram | None = None
    for window_s in (_LIFE_WINDOW_S, LONGEST_S):
        told = [life for log in logs if (life := log.lives(now - window_s)) is not None]
        merged = merge(told)
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
    """Give standard deviation over mean of the answers' lengths; None where too few are known.

    Between looks: if n answers of a look have the mean m, then Σ n (m - mean)² over the looks less one is
    the variance of single answers (analysis of variance), with no error from buckets.
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
    told: dict[str, float] = {}
    reasons = [lane.finished for lane in lanes if lane.finished]
    if reasons:
        told["finished"] = sum(sum(one.values()) for one in reasons)
        if any(not (FAILED_REASONS | ABORTED_REASONS).isdisjoint(one) for one in reasons):
            told["failed"] = sum(one.get(name, 0.0) for one in reasons for name in FAILED_REASONS)
            told["aborted"] = sum(one.get(name, 0.0) for one in reasons for name in ABORTED_REASONS)
    tokens = {
        "prompt_tokens": lane_sum(lanes, lambda lane: lane.prompt_tokens),
        "generation_tokens": lane_sum(lanes, lambda lane: lane.generation_tokens),
    }
    told |= {name: count for name, count in tokens.items() if count is not None}
    answers = [lane.answer_tokens for lane in lanes if lane.answer_tokens is not None]
    if answers:
        told[_ANSWERS] = sum(one.count for one in answers)
        told[_TOKENS] = sum(one.sum for one in answers)
    return {name: value for name, value in told.items() if math.isfinite(value)}
