"""The step times of a backend: their baseline, the alert that they are slow, the polls for limits."""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Sequence
from statistics import median

from sparktop.analysis.evidence import Poll
from sparktop.analysis.speed_state import StepPace
from sparktop.analysis.yardsticks import batch_key
from sparktop.model.engine import EngineSample
from sparktop.model.event import Severity, Values
from sparktop.model.instant import Instant
from sparktop.model.series import drop_older, known_median
from sparktop.model.snapshot import BackendView
from sparktop.model.yardsticks import SteadyLoad
from sparktop.rates import RATE_WINDOW_S, Tally
from sparktop.store.event_log import ActiveAlerts
from sparktop.store.sources import SourceKey

# Peers are backends that serve the same model. A step takes longer with a larger batch, but never by more
# than the batch grew, because the weights are read once per step. So if the batch is k times the peer's,
# steps count as slow only if they take at least max(3 √k, 1.5 k) times as long as the peer's, which a
# larger batch alone cannot explain.


PEER_RATIO = 3.0
"""A backend is slow from this multiple of its peers' step time on: far more than two equal backends differ
by."""
_CLEARS_AT = 2.0
"""The alert clears below this multiple of the step time of peers."""
SLOW_AFTER_S = 10.0
"""Steps count as slow once they have been slow for this many seconds."""
_UNJUDGED_S = 120.0
"""The alert stays for this many seconds while the backend or its peers are idle, so that steps cannot be
compared."""


class SlowSteps:
    """State of the "slow-steps" alert of one backend."""

    def __init__(self) -> None:
        """Start without any comparison."""
        self._since: float | None = None
        self._judged_at: float | None = None
        self._against_peers = False
        """True if the active alert came from the comparison with peers. Equally slow earlier steps of the
        backend itself then do not clear the alert."""

    @property
    def seems_slow(self) -> bool:
        """Whether the newest steps were slow, even if not yet for long enough for the alert."""
        return self._since is not None

    def judge(
        self,
        alerts: ActiveAlerts,
        key: SourceKey,
        view: BackendView,
        pace: StepPace | None,
        peers: Sequence[BackendView],
        when: Instant,
    ) -> None:
        """Raise, update or clear the alert "slow-steps" after a successful poll.

        `view` is the backend, `pace` compares its steps with its own earlier steps, and `peers` are backends
        with the same model. If the backend runs on a watched node and its steps are slower than earlier, an
        alert of that node reports this instead.
        """
        alert_id, at = f"{key.label}:slow-steps", when.at
        is_alerted = alerts.severity(alert_id) is not None
        comparison = self._compare(view, pace, peers, is_alerted=is_alerted)
        if not isinstance(comparison, bool):
            self._judged_at = at
            self._since = at if self._since is None else self._since
            if at - self._since >= SLOW_AFTER_S:
                alerts.hold(alert_id, Severity.WARNING, view.name, *comparison, when)
            return
        self._since = None
        if comparison or self._judged_at is None or at - self._judged_at >= _UNJUDGED_S:
            alerts.clear(alert_id, when)

    def _compare(
        self, view: BackendView, pace: StepPace | None, peers: Sequence[BackendView], *, is_alerted: bool
    ) -> tuple[str, Values] | bool:
        """Return message and values of the alert if steps are slow, True if they are not, False if unknown.

        `is_alerted` is whether the alert is active. The limit of the ratio of the step time to the peers' is
        lower then, so that a ratio near the limit does not clear and raise the alert again and again.
        """
        if pace is not None and pace.slow and not view.nodes:
            self._against_peers = False
            message = (
                f"slow steps: {pace.now_ms:,.0f} ms each at {pace.running:.0f} requests,"
                f" {pace.before_ms:,.0f} ms before: look at the machine's clock, power and other work"
            )
            return message, _alert_values(view, "before_ms", pace.before_ms)
        ratios = [(_step_ratio(view, peer), peer) for peer in peers]
        compared = [(ratio, peer) for ratio, peer in ratios if ratio is not None]
        if not compared:
            return pace is not None and pace.healthy and not self._against_peers
        middle = median(ratio for ratio, _ in compared)
        if middle < (_CLEARS_AT if is_alerted else PEER_RATIO):
            return True
        self._against_peers = True
        ratio, peer = min(compared, key=lambda pair: abs(pair[0] - middle))
        peer_needs_ms = (view.step_ms or 0.0) / ratio
        message = (
            f"slow steps: {view.step_ms:,.0f} ms each at {view.running:.0f} requests; {peer.name} would need "
            f"about {peer_needs_ms:,.0f} ms for such a batch: {ratio:.1f} × as long; look at the machine's "
            "clock, power and other work"
        )
        values = _alert_values(view, "peer_needs_ms", peer_needs_ms)
        limits = {"ratio": middle, "limit_ratio": PEER_RATIO, "clears_below_ratio": _CLEARS_AT}
        return message, {**values, **limits, "peer": peer.name}


def _alert_values(view: BackendView, name: str, usual_ms: float | None) -> Values:
    """Return the numbers behind the alert: the step time, and the usual step time under `name`.

    The time over which steps are measured and the time for which they must be slow are included.
    """
    return {
        "step_ms": view.step_ms,
        name: usual_ms,
        "window_s": RATE_WINDOW_S,
        "limit_s": SLOW_AFTER_S,
    }


def _step_ratio(view: BackendView, peer: BackendView) -> float | None:
    """Return step time / peer's step time, corrected for a larger batch; None if unknown.

    The ratio is divided by the largest factor that the difference in batch size can explain.
    """
    if not view.step_ms or not peer.step_ms or not view.running or not peer.running:
        return None
    batches = (
        view.tokens_per_step / peer.tokens_per_step if view.tokens_per_step and peer.tokens_per_step else 1.0
    )
    larger = max(1.0, batches, view.running / peer.running)
    return view.step_ms / peer.step_ms / max(math.sqrt(larger), larger / 2)


# A backend's usual step time by batch size; longer steps show that its machine is slow.


LEARNED_FROM = 10
"""Samples of a batch size that are needed before its steps have a baseline."""
_USUAL_CLEARS_AT = 0.6
"""Slow steps count as healthy again below this share of the allowed excess over the baseline."""
_MOST_BATCHES = 256
"""Batch sizes remembered; the one not seen for the longest time is dropped."""
_NEWEST_S = 300.0
"""Seconds within which `LEARNED_FROM` samples are of one steady load."""

_StepBatch = tuple[int, int, int]


class _BatchSteps:
    """The step times of one batch size that are not slow, and the baseline computed from them."""

    __slots__ = ("best_ms", "recent")

    def __init__(self) -> None:
        self.best_ms: float | None = None
        self.recent: deque[SteadyLoad] = deque(maxlen=LEARNED_FROM)

    def learn(self, load: SteadyLoad) -> SteadyLoad | None:
        """Add steps that are not slow, update the baseline, and return the medians if they are of now.

        The baseline is the lowest median of `LEARNED_FROM` step times in a row.
        """
        self.recent.append(load)
        if len(self.recent) < LEARNED_FROM:
            return None
        step_ms = median(recent.step_ms for recent in self.recent)
        self.best_ms = step_ms if self.best_ms is None else min(self.best_ms, step_ms)
        if load.at - self.recent[0].at > _NEWEST_S:
            return None
        return SteadyLoad(
            load.at,
            median(recent.running for recent in self.recent),
            median(recent.batch for recent in self.recent),
            step_ms,
            known_median(recent.tps for recent in self.recent),
            known_median(recent.kv_percent for recent in self.recent),
        )


class StepBaseline:
    """Learns how long a backend's steps take at each batch size, and detects when they take longer.

    A batch size is described by its requests, its tokens per step (many during a prefill) and the magnitude
    of the KV cache usage (attention reads the cache in each step). Slow steps are not learned, so a slow
    state never becomes the baseline, however long it lasts.
    """

    def __init__(self, backend: str, slow_ratio: float) -> None:
        """Prepare for `backend`; its steps are slow from `slow_ratio` times the baseline on."""
        self._backend = backend
        self._ratio = slow_ratio
        self._steps_by_batch: OrderedDict[_StepBatch, _BatchSteps] = OrderedDict()
        self._slow_since: float | None = None
        self._slow = False
        self.steady: SteadyLoad | None = None
        """The steps of now, unless they are slow or too few of this batch size were seen."""

    def set_ratio(self, slow_ratio: float) -> None:
        """Judge later steps by another ratio to the baseline."""
        self._ratio = slow_ratio

    def clear(self) -> None:
        """Forget all baselines, because the server restarted or another server answers."""
        self._steps_by_batch.clear()
        self.pause()
        self.steady = None

    def pause(self) -> None:
        """Forget a period of slow steps: to count, slowness must last `SLOW_AFTER_S` seconds again."""
        self._slow_since, self._slow = None, False

    def note(self, load: SteadyLoad) -> StepPace | None:
        """Compare a step time with the baseline of its batch size, and then learn it, unless it is slow.

        Return the comparison; None until there is a baseline for this batch size. The baseline is the lowest
        median of `LEARNED_FROM` learned step times in a row. `load` has means over some seconds up to its
        time (monotonic).
        """
        at, step_ms = load.at, load.step_ms
        key = batch_key(load.running, load.batch, load.kv_percent)
        measure = self._steps_by_batch.get(key)
        if measure is None:
            measure = self._steps_by_batch[key] = _BatchSteps()
            if len(self._steps_by_batch) > _MOST_BATCHES:
                self._steps_by_batch.popitem(last=False)
        else:
            self._steps_by_batch.move_to_end(key)
        before_ms = measure.best_ms
        healthy = before_ms is not None and step_ms < (1 + (self._ratio - 1) * _USUAL_CLEARS_AT) * before_ms
        if before_ms is None or healthy or (not self._slow and step_ms < self._ratio * before_ms):
            self.steady = measure.learn(load)
            self.pause()
        else:
            self.steady = None
            self._slow_since = at if self._slow_since is None else self._slow_since
            self._slow = at - self._slow_since >= SLOW_AFTER_S
        if before_ms is None:
            return None
        return StepPace(self._backend, step_ms, before_ms, load.running, self._slow, healthy)


# The polls of the last minute that the limit of a backend is judged by.


_KEPT_S = 60.0
"""Seconds for which polls are kept."""
_APART_S = 0.9
"""A group whose balance is judged is polled up to four times a second; one poll a second is enough."""


class WorkLog:
    """The load and the counters of a server, about one poll a second over a minute."""

    def __init__(self) -> None:
        """Start without polls."""
        self.polls: deque[Poll] = deque()
        self._cpu: deque[tuple[float, float]] = deque()
        """(time, CPU seconds of the HTTP server's process) of each poll."""

    def gap(self) -> None:
        """Forget all polls, because a poll failed or another server answers: totals begin again."""
        self.polls.clear()
        self._cpu.clear()

    def note(self, sample: EngineSample, view: BackendView, tally: Tally | None, prompts: str) -> None:
        """Add a poll at the time of `sample`, unless the last one is less than about a second old.

        `view` has the load at that time, `tally` the totals, and `prompts` is the name of the total that
        counts computed prompt tokens.
        """
        at, polls = sample.at, self.polls
        if polls and at - polls[-1].at < _APART_S:
            return

        def total(name: str) -> float | None:
            return None if tally is None else tally.counter(name)

        waiting, able = view.waiting, view.waiting_for_capacity
        elsewhere = sum(lane.held_elsewhere for lane in sample.lanes)
        if waiting is not None and elsewhere and not view.running:
            waiting, able = waiting + elsewhere, waiting if able is None else able
        polls.append(
            Poll(
                at,
                view.running,
                waiting,
                able,
                view.kv_fullest_percent,
                total("steps"),
                total("generation_tokens"),
                total(prompts),
                total("preemptions"),
                total("finished"),
                total("prefill_seconds"),
            )
        )
        while polls[0].at < at - _KEPT_S:
            polls.popleft()
        if sample.cpu_s is not None:
            self._cpu.append((at, sample.cpu_s))
            drop_older(self._cpu, at - _KEPT_S / 2)

    @property
    def server_cores(self) -> float | None:
        """CPU cores that the HTTP server's process used over the last 30 s; None if it is not reported."""
        if len(self._cpu) < 2:  # noqa: PLR2004 - a rate needs two
            return None
        (first_at, first), (last_at, last_cpu_s) = self._cpu[0], self._cpu[-1]
        return (last_cpu_s - first) / (last_at - first_at) if last_cpu_s >= first else None
