"""The search for the highest rate that a target keeps up with: the knee of the curve of latency over rate.

It begins at the rate of requests sent one after the other, 1 / E2E, and doubles it until the server does not
keep up. Then it halves the gap on a logarithmic scale, until both ends are at most a factor of 1.2 apart.
"""

from __future__ import annotations

import math
from statistics import fmean

from sparktop.model.load import LoadKind, LoadPoint
from sparktop.sweep.generator.wire.messages import RunLoad
from sparktop.sweep.plan.arrivals import LEAST_RATE, MOST_ARRIVALS, MOST_RATE
from sparktop.sweep.plan.plan import Plan
from sparktop.sweep.plan.presets import OPEN_S
from sparktop.sweep.result.measure import collect
from sparktop.sweep.result.results import LevelResult
from sparktop.sweep.run.preparation import PreparedTarget
from sparktop.sweep.run.record import RunRecord
from sparktop.sweep.run.worker_process import SweepWorker

GAP = 1.2
"""Largest ratio of the lowest rate that is too much to the highest that is not, at the end of the search."""
MOST_LEVELS = 16
_FIRST_PER_S = 1.0
_DIGITS = 3
_ALONE_RUNS = 2
"""Requests sent alone: the first one may have to wait for compilation, the last one counts."""


class KneeSearch:
    """Chooses the next rate to measure from the rates that were measured so far."""

    def __init__(self, first_per_s: float | None, most_per_s: float = MOST_RATE) -> None:
        """Begin at `first_per_s` requests per second; None if the time of a request alone is unknown."""
        self._next = _rounded(min(most_per_s, max(LEAST_RATE, first_per_s or _FIRST_PER_S)))
        self._most = most_per_s
        self._kept_up: dict[float, bool] = {}

    @property
    def highest(self) -> float | None:
        """The highest rate below all that were too much; None if there is none."""
        below = self.too_much or math.inf
        return max((rate for rate, held in self._kept_up.items() if held and rate < below), default=None)

    @property
    def too_much(self) -> float | None:
        """The lowest rate with which the target did not keep up; None if it kept up with all."""
        return min((rate for rate, held in self._kept_up.items() if not held), default=None)

    def add(self, point: LoadPoint, *, kept_up: bool) -> None:
        """Record whether the target kept up with the rate of `point`."""
        self._kept_up[point.value] = kept_up

    def next(self) -> LoadPoint | None:
        """Return the next rate to measure; None at the end of the search."""
        rate = self._next_rate()
        known = rate is None or rate in self._kept_up or len(self._kept_up) >= MOST_LEVELS
        return None if known or rate is None else LoadPoint(LoadKind.RATE, rate)

    def _next_rate(self) -> float | None:
        if not self._kept_up:
            return self._next
        highest, too_much = self.highest, self.too_much
        if too_much is None:
            return _rounded(min(self._most, 2 * max(self._kept_up)))
        if highest is None:
            return _rounded(max(LEAST_RATE, too_much / 2))
        return None if too_much <= GAP * highest else _rounded(math.sqrt(highest * too_much))

    def words(self) -> str:
        """Return what was found, as text: "keeps up with 2.83 /s, not with 3.36 /s"."""
        highest, too_much = self.highest, self.too_much
        if highest is None:
            return "nothing was measured" if too_much is None else f"does not keep up with {too_much:g} /s"
        beyond = "" if too_much is None else f", not with {too_much:g} /s"
        return f"keeps up with {highest:g} /s{beyond}"


def most_per_s(plan: Plan) -> float:
    """Return the highest rate of which a level of the plan may have the requests."""
    return min(MOST_RATE, MOST_ARRIVALS / (plan.duration_s or OPEN_S))


def keeps_up(level: LevelResult, max_error_share: float) -> bool:
    """Return whether a server kept up with a level: no growth, no limit of the client, few failures."""
    found = level.open_loop
    if found is None or found.unstable or found.overloaded:
        return False
    ended = level.requests.ok + level.requests.failed
    return ended > 0 and level.requests.failed <= max_error_share * ended


async def alone_per_s(plan: Plan, prepared: PreparedTarget, worker: SweepWorker, name: str) -> float | None:
    """Return how many requests per second the target completes one after the other; None if it fails.

    `name` is unique in the sweep.
    """
    e2e_s: float | None = None
    for run in range(_ALONE_RUNS):
        run_id = f"{name}-alone-{run}"
        fresh = "" if prepared.takes_salt or plan.prompts is not None else f"/{run_id}"
        command = RunLoad(
            id=run_id,
            target=prepared.asks,
            concurrency=1,
            prompt_tokens=plan.pp,
            output_tokens=plan.tg,
            seed=plan.seed,
            prompt_salt=f"{plan.seed}/alone-{run}" + fresh,
            cache_salt=run_id,
            timeouts=plan.timeouts,
            warm_up=True,
        )
        record = RunRecord(run_id)
        async for message in worker.run(command):
            record.add(message)
        times = [trace.e2e_s for trace in collect(record.events()) if trace.ok and trace.e2e_s]
        e2e_s = fmean(times) if times else None
    return 1 / e2e_s if e2e_s else None


def _rounded(rate: float) -> float:
    return float(f"{rate:.{_DIGITS}g}")
