"""The load of a backend or lane (an engine core) over ten minutes, and the role that it shows."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from operator import attrgetter

from msgspec.structs import replace

from sparktop.analysis.balance.load_grid import LoadTrack, load_track
from sparktop.model.engine import Histogram, LaneSample, lane_sum
from sparktop.model.series import HistoryTable
from sparktop.model.snapshot import BackendHistory
from sparktop.rates import (
    LEAST_OBSERVATIONS,
    LIVE_SPAN_S,
    MISSED_INTERVALS,
    difference,
    histogram_quantile,
    merge,
)

# Each request visits a prefill worker and a decode worker, so the two kinds have no common share of the
# load. A prefill worker processes prompts and generates at most the first token; a decode worker generates
# the remaining tokens and computes no prompts. Both kinds must be present: a normal server that gets only
# requests for a single token looks like a prefill worker too.


_FEWEST_REQUESTS = 8
"""Finished requests from which on a backend's counts show its role."""
_FIRST_TOKEN = 1.2
"""Upper limit of generated tokens per finished request of a prefill worker; above 1, because tokens of
requests that are still running count too."""
_DECODES = 4.0
"""Lower limit of generated tokens per finished request of a decode worker."""
_NO_PROMPTS = 0.02
"""Upper limit of prompt tokens per generated token of a decode worker that counts only the prompts that it
computed itself."""
_SAME_REQUESTS = 0.15
"""Relative difference of finished requests up to which prefill and decode workers count as having served the
same requests."""


_DYNAMO = "backend"
"""What Dynamo calls a worker that decodes."""


class Role(StrEnum):
    """The phase of each request that a worker computes."""

    PREFILL = "prefill"
    DECODE = "decode"


Counted = Mapping[str, float]
"""What a backend counted in some minutes, as `LoadLog.counts_since` returns it."""


def worker_roles(counted: Mapping[str, Counted]) -> dict[str, Role]:
    """Return the role of each backend of a group; empty unless each is clearly a prefill or a decode worker.

    Some engine versions count prompts at the decode worker too, although its KV cache comes from the
    prefill worker. Then prefill and decode workers must also have finished equally many requests, within
    15 %.
    """
    if not all(map(_shows_a_role, counted.values())):
        return {}
    prefills = {name for name, counts in counted.items() if _only_prefills(counts)}
    decodes = {name for name, counts in counted.items() if name not in prefills and _decodes(counts)}
    if not prefills or not decodes or len(prefills) + len(decodes) < len(counted):
        return {}
    by_prefills = sum(counted[name]["finished"] for name in prefills)
    by_decodes = sum(counted[name]["finished"] for name in decodes)
    no_prompts = all(_computes_no_prompts(counted[name]) for name in decodes)
    if not no_prompts and abs(by_prefills - by_decodes) > _SAME_REQUESTS * max(by_prefills, by_decodes):
        return {}
    return {name: Role.PREFILL if name in prefills else Role.DECODE for name in counted}


def reported_roles(reported: Mapping[str, str | None]) -> dict[str, Role]:
    """Return the roles of a group's backends from the words that they report; empty if none reports a role.

    A backend without a role of its own is left out. Dynamo calls a worker that decodes "backend", whether it
    also does the prefill or not: beside a prefill worker it does not.
    """
    words = {role.value: role for role in Role}
    roles = {name: words[word] for name, word in reported.items() if word in words}
    if Role.PREFILL in roles.values():
        roles |= dict.fromkeys((name for name, word in reported.items() if word == _DYNAMO), Role.DECODE)
    return roles


def _shows_a_role(counts: Counted) -> bool:
    has_all = {"finished", "prompt_tokens", "generation_tokens"} <= counts.keys()
    return has_all and counts["finished"] >= _FEWEST_REQUESTS


def _only_prefills(counts: Counted) -> bool:
    return (
        counts["prompt_tokens"] > 0 and counts["generation_tokens"] <= _FIRST_TOKEN * counts["finished"] + 1
    )


def _decodes(counts: Counted) -> bool:
    return counts["generation_tokens"] >= _DECODES * counts["finished"]


def _computes_no_prompts(counts: Counted) -> bool:
    return counts["prompt_tokens"] <= _NO_PROMPTS * counts["generation_tokens"]


LONGEST_S = 600.0
"""The widest window that is judged, in seconds."""
CAPACITY = 2400
"""Points kept: the widest window at 4 polls a second. Together with 300 entries of answers and 120 histograms
this is at most 220 kB."""
_KEPT_S = 1.5 * LONGEST_S
"""Seconds kept at slower rates: as long as the other graphs of the board at 1 Hz."""
_GAUGES = ("running", "waiting", "generation_tps")
"""Series of values of the moment."""
_COUNTS = ("finished", "failed", "aborted", "prompt_tokens", "generation_tokens")
"""Totals of requests and tokens since the log's first sample."""
_ARRIVED, _VANISHED = "arrived", "vanished"
"""Totals of the requests that came, and of those among them that left without being counted as ended."""
_ANSWERS, _TOKENS = "answers", "tokens"
"""Counters of finished answers with known lengths, and of their tokens."""
FAILED_REASONS, ABORTED_REASONS = frozenset({"error", "failure"}), frozenset({"abort"})
"""The finish reasons of vLLM and TGI for failed requests, and their finish reasons for aborted requests."""
_UNFINISHED_REASONS = FAILED_REASONS | ABORTED_REASONS
_TOKEN_COUNTS: Mapping[str, Callable[[LaneSample], float | None]] = {
    name: attrgetter(name) for name in ("prompt_tokens", "generation_tokens")
}
_running_of: Callable[[LaneSample], float | None] = attrgetter("running")
_waiting_of: Callable[[LaneSample], float | None] = attrgetter("waiting")
_LIFE_EVERY_S = 5.0
"""Seconds between two records of the histogram of durations."""
_PIECE_S = 2.0
"""Finished answers are grouped over this many seconds, which yields enough groups to estimate how much the
lengths vary."""
_LIVES_KEPT = math.ceil(LONGEST_S / _LIFE_EVERY_S) + 2
"""Histograms kept: those of the widest window, and one before it."""
_LIFE_HEAD = 2
"""Numbers before the counts of each record of a histogram: its time and sum."""
_ANSWERS_KEPT = math.ceil(LONGEST_S / _PIECE_S)
ABORTS_THAT_COUNT = 0.02
"""Share of the finished requests from which on aborts count as errors. Fewer aborts are clients that
hung up."""
_LIFE_WINDOW_S, _ENOUGH_LIVES = 120.0, 20
"""The durations of requests depend on the load, so the newest requests are used alone if there are enough of
them."""
_FEWEST_PERIODS, _FEWEST_ANSWERS = 8, 16
"""With fewer groups of answers, or fewer answers, the variation of lengths would be a guess."""


class LoadLog:
    """The load of one backend or engine core (lane), sample by sample.

    A failed poll leaves a gap. After a restart of the server, its totals continue from the first sample of
    the restarted server.
    """

    def __init__(self) -> None:
        """Start without samples."""
        self._table = HistoryTable((*_GAUGES, *_COUNTS, _ARRIVED, _VANISHED), CAPACITY, _KEPT_S)
        self.since = math.inf
        """Monotonic time of the first sample."""
        self._live = True
        """False if the newest token rate is not that of the moment, because tokens are counted only when a
        request finishes."""
        self._reported: dict[str, float] = {}
        """The counters on the newest metrics page."""
        self._totals: dict[str, float] = {}
        self._lives = array("d")
        """Time, sum and counts of the histogram of the durations of all requests so far, recorded every few
        seconds; one after the other, because single objects take twice the memory."""
        self._life: Histogram | None = None
        self._life_bounds: tuple[float, ...] = ()
        """Bucket bounds of the histograms in `_lives`."""
        self._answers = array("d")
        """Time, answers finished since the previous entry, and total number of their tokens; one after the
        other."""

    def note(
        self,
        at: float,
        lanes: Sequence[LaneSample],
        generation_tps: float | None,
        *,
        continues: bool,
        live: bool = True,
    ) -> None:
        """Add a sample of the backend: the sum over `lanes`, its engine cores.

        `continues` is False if another process answers than before. If `live` is False, the token rate is
        kept for graphs but not used for the balance.
        """
        self._live, self.since = live, min(self.since, at)
        reported = _reported_counts(lanes)
        if continues:
            before, totals = self._reported, self._totals
            for name in _COUNTS:
                if name in reported:
                    count = reported[name]
                    totals[name] = totals.get(name, 0.0) + max(0.0, count - before.get(name, count))
            self._keep_answers(at, reported)
        else:
            # What this process counted since the previous sample is unknown.
            self._totals = dict.fromkeys(reported.keys() & set(_COUNTS), 0.0) | self._totals
            del self._lives[:]
        self._reported = reported
        self._keep_durations(at, merge([lane.e2e for lane in lanes if lane.e2e is not None]))
        running, waiting = lane_sum(lanes, _running_of), lane_sum(lanes, _waiting_of)
        self._count_arrivals(running, waiting)
        gauges = {"running": running, "waiting": waiting, "generation_tps": generation_tps}
        self._table.append(at, gauges | self._totals)

    def gap(self, at: float) -> None:
        """Add a gap at `at`: the server did not answer."""
        self._table.append(at, {})

    def history(self) -> BackendHistory:
        """Return running requests, waiting requests and generated tokens/s over time."""
        return BackendHistory(**self._table.series(*_GAUGES))

    def track(self, name: str, since: float, *, slots: int | None, errors: float | None) -> LoadTrack:
        """Return the load from `since` (monotonic) on as input for the balance.

        Samples that report no load are left out. `name`, `slots` and `errors` are copied into the result.
        """
        failed = None if errors is None else round(errors)
        kept = self.history()
        track = load_track(
            name, kept.running, kept.waiting, kept.generation_tps, since_s=since, slots=slots, errors=failed
        )
        track = replace(track, arrived=self._arrivals(track, since))
        if not self._live:
            track = replace(track, generation_tps=None)
        if not math.isnan(sum(track.running)):
            return track
        return track.only([index for index, load in enumerate(track.running) if not math.isnan(load)])

    def _arrivals(self, track: LoadTrack, since: float) -> list[float] | None:
        """Return, for each point of `track`, the number of requests that had arrived by then.

        This is the number of requests that had ended or left uncounted, plus those running or waiting. Return
        None if ended requests are not counted.
        """
        _, arrived = self._table.series(_ARRIVED)[_ARRIVED].arrays(since)
        is_counted = len(arrived) == len(track.times_s) and not all(map(math.isnan, arrived))
        return list(arrived) if is_counted else None

    def counts_since(self, since: float) -> dict[str, float]:
        """Return how much each of the server's counters grew from `since` on, by name.

        These are counters of requests and tokens. Counters that the server does not report are absent.
        """
        grown = {name: self.growth_since(name, since) for name in _COUNTS}
        return {name: growth for name, growth in grown.items() if growth is not None}

    def growth_since(self, name: str, since: float) -> float | None:
        """Return how much one of these counters grew from `since` on; None if it is not reported."""
        ends = self._table.series(name)[name].ends(since)
        return None if ends is None else ends[1] - ends[0]

    def errors_since(self, since: float) -> float | None:
        """Return the requests that failed from `since` on; None if the server does not count failures.

        Aborted requests are included if there are many of them, because a router that gives up on a backend
        aborts its request.
        """
        counted = self.counts_since(since)
        failures, aborted = counted.get("failed"), counted.get("aborted", 0.0)
        if failures is None:
            return None
        return failures + (aborted if aborted >= ABORTS_THAT_COUNT * counted["finished"] else 0.0)

    def arrivals_since(self, since: float) -> float | None:
        """Return the number of requests that arrived from `since` on; None if not all that ended are counted.

        This is the number of requests that ended or left uncounted, plus the growth of the number running or
        waiting.
        """
        arrived = self.growth_since(_ARRIVED, since)
        return None if arrived is None or arrived < 0 else arrived

    def vanished_since(self, since: float) -> float:
        """Return the least number of requests that left from `since` on without being counted as ended.

        vLLM does not count requests whose clients hung up: those in flight get fewer, and none has ended. One
        that is replaced by a new one before the next sample is not seen.
        """
        return self.growth_since(_VANISHED, since) or 0.0

    def requests_now(self) -> float | None:
        """Return the requests running and waiting in the newest sample; None if they are not reported."""
        history = self.history()
        ends = [gauge.ends(-math.inf) for gauge in (history.running, history.waiting)]
        return None if ends[0] is None else sum(end[1] for end in ends if end is not None)

    def durations_since(self, since: float) -> Histogram | None:
        """Return a histogram of the durations of requests that ended from `since` on; None if unknown."""
        lives, life = self._lives, self._life
        if life is None or not lives:
            return None
        size = _LIFE_HEAD + len(life.bounds)
        start = size * bisect_left(lives[::size], since)
        if start == len(lives):
            return None
        return difference(
            life, Histogram(life.bounds, lives[start + _LIFE_HEAD : start + size], lives[start + 1])
        )

    def answers_since(self, since: float) -> list[tuple[float, float]]:
        """Return (number of finished answers, total number of their tokens) for each period of about 2 s.

        These are the periods that began at `since` or later. Periods without a finished answer are absent.
        """
        answers = self._answers
        records = zip(answers[::3], answers[1::3], answers[2::3], strict=True)
        return [(number, tokens) for at, number, tokens in records if at >= since]

    def _count_arrivals(self, running: float | None, waiting: float | None) -> None:
        """Count the requests that came, by those that ended, run or wait.

        These never get fewer but by requests that left uncounted. Where ends have no reasons, another process
        counts them than runs the requests, and at another moment: then they do for a while.
        """
        totals = self._totals
        if running is None or "finished" not in totals:
            return
        arrived = totals["finished"] + running + (waiting or 0.0) + totals.get(_VANISHED, 0.0)
        if "failed" in totals:
            vanished = max(0.0, totals.get(_ARRIVED, arrived) - arrived)
            totals[_VANISHED] = totals.get(_VANISHED, 0.0) + vanished
            arrived += vanished
        totals[_ARRIVED] = arrived

    def _keep_durations(self, at: float, life: Histogram | None) -> None:
        """Record the histogram of the durations of all requests so far, if the last record is old enough."""
        self._life, lives = life, self._lives
        if life is None:
            return
        if life.bounds != self._life_bounds:
            del lives[:]  # histograms with other bounds cannot be subtracted
            self._life_bounds = life.bounds
        size = _LIFE_HEAD + len(life.bounds)
        if not lives or at - lives[-size] >= _LIFE_EVERY_S:
            lives.extend((at, life.sum, *life.cumulative))
            del lives[: -size * _LIVES_KEPT]

    def _keep_answers(self, at: float, reported: Mapping[str, float]) -> None:
        """Add the answers finished since the previous sample to the current period of about 2 s.

        If that period is over, a new one begins.
        """
        number = reported.get(_ANSWERS, 0.0) - self._reported.get(_ANSWERS, math.inf)
        tokens = reported.get(_TOKENS, 0.0) - self._reported.get(_TOKENS, math.inf)
        if not (number > 0 and tokens > 0):
            return
        answers = self._answers
        if answers and at - answers[-3] < _PIECE_S:
            answers[-2] += number
            answers[-1] += tokens
        else:
            answers.extend((at, number, tokens))
            del answers[: -3 * _ANSWERS_KEPT]


def median_life_s(logs: Iterable[LoadLog], now: float) -> float | None:
    """Return the median duration of a group's requests in seconds; None if unknown or too few ended.

    It is interpolated linearly in merged histogram buckets. If the mean lies in the same bucket as the
    median, the mean is returned instead, because it is exact.
    """
    logs = list(logs)
    merged: Histogram | None = None
    for window_s in (_LIFE_WINDOW_S, LONGEST_S):
        lives = [log.durations_since(now - window_s) for log in logs]
        merged = merge([life for life in lives if life is not None])
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
    """Return standard deviation / mean of the answers' lengths in tokens; None if too few are known.

    Only the total length of the n answers that finished in the same 2 s is known, not each length. If m is
    their mean length, Σ n (m - mean)² / (periods - 1) estimates the variance of single answers (analysis of
    variance). It has no error from histogram buckets.
    """
    steps = [step for log in logs for step in log.answers_since(since)]
    number = sum(count for count, _ in steps)
    if len(steps) < _FEWEST_PERIODS or number < _FEWEST_ANSWERS:
        return None
    mean = sum(tokens for _, tokens in steps) / number
    if mean <= 0:
        return None
    variance = sum(count * (tokens / count - mean) ** 2 for count, tokens in steps) / (len(steps) - 1)
    return math.sqrt(variance) / mean


def _reported_counts(lanes: Sequence[LaneSample]) -> dict[str, float]:
    """Return the counters of a page by name, summed over its engine cores; unreported ones are absent."""
    reported: dict[str, float] = {}
    reasons = [lane.finished for lane in lanes if lane.finished]
    if reasons:
        reported["finished"] = sum([sum(reason.values()) for reason in reasons])
        if not all(map(_UNFINISHED_REASONS.isdisjoint, reasons)):
            for ends, names in (("failed", FAILED_REASONS), ("aborted", ABORTED_REASONS)):
                reported[ends] = sum([counts.get(name, 0.0) for counts in reasons for name in names])
    for name, of in _TOKEN_COUNTS.items():
        count = lane_sum(lanes, of)
        if count is not None:
            reported[name] = count
    answers = [lane.answer_tokens for lane in lanes if lane.answer_tokens is not None]
    if answers:
        reported[_ANSWERS] = sum(answer.count for answer in answers)
        reported[_TOKENS] = sum(answer.sum for answer in answers)
    return {name: value for name, value in reported.items() if math.isfinite(value)}


# The load over time of each lane of a server, for servers with 2 to 16 lanes.
#
# A lane is one engine core (data-parallel rank) of a server.


MOST_LANES = 16
"""With more lanes than this, the load of no lane is recorded: the histories would cost more than they
show."""


class LaneLogs:
    """The load over time of each engine core (lane) of a server.

    Nothing is recorded for a server with a single lane or with more than `MOST_LANES`.
    """

    def __init__(self) -> None:
        """Start without lanes."""
        self.logs: dict[str, LoadLog] = {}
        """Load logs by lane name."""
        self._rates: dict[str, LaneRate] = {}

    def note(
        self, at: float, lanes: Sequence[LaneSample], *, continues: bool, interval_s: float
    ) -> dict[str, BackendHistory]:
        """Add the samples of all engine cores (lanes) at `at`; return the history of each lane by lane name.

        The result is empty if the server has a single lane or too many. `continues` is False if the server
        restarted or another server answered since the previous sample.
        """
        if not continues or not 1 < len(lanes) <= MOST_LANES:
            self._rates.clear()
        if not 1 < len(lanes) <= MOST_LANES:
            self.logs.clear()
            return {}
        for gone in self.logs.keys() - {lane.lane for lane in lanes}:
            self.logs[gone].gap(at)
        histories: dict[str, BackendHistory] = {}
        for lane in lanes:
            log = self.logs.get(lane.lane)
            is_continued = log is not None and continues
            if log is None:
                log = self.logs[lane.lane] = LoadLog()
            rate = self._rates.setdefault(lane.lane, LaneRate())
            tokens = None if lane.per_finished_request else lane.generation_tokens
            log.note(
                at, (lane,), rate.note(at, tokens, MISSED_INTERVALS * interval_s), continues=is_continued
            )
            histories[lane.lane] = log.history()
        return histories

    def gap(self, at: float) -> None:
        """Add a gap at `at` for every engine core (lane), because the server did not answer."""
        for log in self.logs.values():
            log.gap(at)


class LaneRate:
    """The generated tokens per second of one engine core (lane), over about the last second."""

    def __init__(self) -> None:
        """Start without samples."""
        self._recent: deque[tuple[float, float]] = deque()
        """(monotonic seconds, tokens)."""

    def note(self, at: float, tokens: float | None, widest_s: float) -> float | None:
        """Add the token counter `tokens` of a sample; return the rate in tokens/s.

        Return None if the counter is unknown, or until the samples span a second. Earlier samples are
        forgotten if the counter fell or the previous sample is more than `widest_s` seconds old.
        """
        recent = self._recent
        fell = tokens is not None and recent and tokens < recent[-1][1]
        if tokens is None or fell or (recent and at - recent[-1][0] > widest_s):
            recent.clear()
        if tokens is None:
            return None
        recent.append((at, tokens))
        # One sample that is older than the span stays, so that the samples span it.
        while len(recent) > 2 and at - recent[1][0] >= LIVE_SPAN_S:  # noqa: PLR2004 - a sample at each end
            recent.popleft()
        took_s = at - recent[0][0]
        return (tokens - recent[0][1]) / took_s if took_s >= LIVE_SPAN_S else None
