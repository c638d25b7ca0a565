"""Converts another tool's benchmark, line by line, to the events of a sweep and to a result.

A level is one load on one target; it is measured in several runs, each a repetition of the load.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import field
from datetime import UTC, datetime
from typing import Literal

from sparktop import __version__
from sparktop.model.load import FirstToken, LevelEnded, LevelStarted, LoadEvent, RequestStarted
from sparktop.model.snapshot import Snapshot
from sparktop.sweep.compare.compare import compare
from sparktop.sweep.compare.series import series_of
from sparktop.sweep.follow.level import FollowedLevel, FollowedRequest
from sparktop.sweep.follow.lines import (
    Asked,
    Begun,
    Completed,
    Ended,
    GaveToken,
    GaveTokens,
    Line,
    Responded,
    Started,
)
from sparktop.sweep.follow.targets import FollowedTargets
from sparktop.sweep.generator.wire.messages import BIN_S, TokenBin
from sparktop.sweep.plan.plan import Plan
from sparktop.sweep.result.axis import PlanResult
from sparktop.sweep.result.client import ClientResult
from sparktop.sweep.result.results import LevelResult, SweepResult, TargetResult
from sparktop.sweep.run.progress import (
    LevelMeasured,
    LoadTold,
    Notice,
    Phase,
    PhaseChanged,
    RunTold,
    SweepEnded,
    SweepEvent,
)
from sparktop.sweep.run.server_side import watched_backends
from sparktop.sweep.view.live import LiveView
from sparktop.values import dataclass

MOST_LEVELS = 1000
MOST_REQUESTS = 200_000
"""Maximum requests of a level; further requests are ignored, so that a file cannot exhaust the memory."""
MOST_READS = 4_000_000
"""Maximum chunks with tokens in a level; further chunks are ignored for the same reason."""
LONGEST_S = 31 * 86400.0
"""Lines whose time differs from that of the first line by more than this are ignored."""
CUT = "the run ended within this level"
_STATUSES: dict[str, Literal["done", "cancelled", "failed"]] = {"ok": "done", "interrupted": "cancelled"}
_BINS_PER_S = round(1 / BIN_S)


@dataclass(frozen=True, slots=True, eq=False)
class ToMeasure:
    """A level whose metrics must be computed. This takes long, so the caller does it in a thread."""

    level: FollowedLevel
    plan: Plan
    cut_short: str | None
    """Why the level is incomplete, as text; None for a complete level."""

    def measure(self) -> LevelResult:
        """Compute the metrics of the level from its requests so far."""
        return self.level.result(self.plan, self.cut_short)


@dataclass(slots=True, eq=False)
class _Pending:
    """Events of one level that are collected until `flush` passes them to the view."""

    events: list[LoadEvent] = field(default_factory=list)
    bins: Counter[int] = field(default_factory=Counter)
    """Number of tokens by time bin."""


class FollowedFold:
    """One benchmark of another tool, built up from the lines of its progress stream, which `take` receives.

    `live` is the view for the screen, `result` the result so far, `to_measure` a queue of levels whose
    metrics must be computed.
    """

    def __init__(self, begun: Begun, offset_s: float, snapshot: Callable[[], Snapshot | None]) -> None:
        """Start a benchmark with `begun`, the first line of its progress stream.

        Adding `offset_s` to a line's time gives this machine's monotonic time. `snapshot` returns the
        newest snapshot of the monitor, or None.
        """
        self.tool = begun.tool
        self._offset_s = offset_s
        self._first_at = begun.at
        self._snapshot = snapshot
        self.at = begun.at + offset_s
        """The latest time in any line, on this machine's monotonic clock."""
        # The number of runs per level is unknown: a plan without a time limit allows any number.
        self.plan = Plan((), (), tg=0, duration_s=math.inf, preset=begun.tool)
        self.live = LiveView(self.plan, clock=lambda: self.at)
        self.over = False
        """True after the line that reports the end of the benchmark; `finish` then completes the result."""
        self.passed_over: Counter[str] = Counter()
        """Number of lines that were ignored because they contradict earlier lines, by reason."""
        self.to_measure: deque[ToMeasure] = deque()
        """Levels that have ended and whose metrics the caller has to compute."""
        self._targets = FollowedTargets()
        self._levels: dict[tuple[str, Asked], FollowedLevel] = {}
        self._open: dict[int, tuple[FollowedLevel, FollowedRequest]] = {}
        """(level, request) of each request in flight, by the tool's request number."""
        self._present: FollowedLevel | None = None
        self._run_reported = True
        self._reads = 0
        self._usual_runs: int | None = None
        self._pending = _Pending()
        self._status = ""
        self._noted_contexts = False
        self.result = SweepResult(
            started_at=datetime.fromtimestamp(begun.at, UTC),
            sparktop=__version__,
            plan=PlanResult(preset=begun.tool, tokens_from=None),
            client=ClientResult(reasons=(stamps_note(begun.tool),)),
        )

    def take(self, line: Line) -> None:
        """Process one line of the progress stream.

        Tokens and ends of requests are collected: they reach the view with the next `flush`.
        """
        at = line.at + self._offset_s
        if abs(line.at - self._first_at) > LONGEST_S:
            self.passed_over["of another month"] += 1
            return
        self.at = max(self.at, at)
        match line:
            case GaveTokens():
                self._tokens(line, at)
            case Started():
                self._start(line, at)
            case Responded() | GaveToken():
                self._first(line, at)
            case Ended():
                self._end(line, at)
            case Completed():
                self._complete(line)
            case Begun():
                pass

    def flush(self) -> None:
        """Pass the tokens and ends of requests that were collected since the last call to the view."""
        pending, level = self._pending, self._present
        if level is None or not (pending.events or pending.bins):
            return
        self._pending = _Pending()
        bins = tuple(TokenBin(number / _BINS_PER_S, None, count) for number, count in pending.bins.items())
        self._emit(
            LoadTold(level.target, level.load, tuple(pending.events), bins, level.in_flight, at=self.at)
        )

    def look(self, snapshot: Snapshot) -> None:
        """Use a snapshot of the monitor: find the servers that are the benchmark's targets, and add samples.

        The samples of these servers and of their machines are added to the view.
        """
        if self._targets.place(snapshot):
            self._grow(self._present)
        reached = {name for one in self.plan.targets for name in watched_backends(one, snapshot)}
        versions = {one.version for one in snapshot.backends if one.name in reached}
        if snapshot.simulated or any("simulated" in (version or "") for version in versions):
            self.result = self.result.model_copy(update={"simulated": True})
        self.live.look(snapshot)

    def measure_present(self) -> None:
        """Queue the current level for the computation of its metrics, although the level has not ended.

        Do nothing if there is no current level.
        """
        level = self._present
        if level is not None and level.runs:
            self.flush()
            self.to_measure.append(ToMeasure(level, self.plan, CUT))

    def measured(self, done: ToMeasure, made: LevelResult) -> None:
        """Add `made`, the computed metrics of the level `done`, to the result and to the view."""
        name = done.level.target
        target = self._targets.by_name[name]
        known = self.result.target(name) or TargetResult(name=name, url=target.url)
        known = known.model_copy(update={"url": target.url, "kind": target.kind, "model": target.model})
        self.result = self.result.with_target(known).with_level(name, made)
        self.result = self.result.model_copy(update={"plan": self._plan_result()})
        self._emit(LevelMeasured(name, made, self.result))
        if done.level is not self._present:
            # Its tokens take as much memory as everything else. If the same load is measured again, that is a
            # new level.
            self._levels.pop((name, done.level.asked), None)

    def finish(self) -> None:
        """Complete the result, and report to the view that the benchmark has ended.

        `measured` must have been called for every level before.
        """
        status = _STATUSES.get(self._status, "failed")
        series = [one for one in series_of(self.result) if one.levels]
        self.result = self.result.model_copy(
            update={
                "status": status,
                "stop_reason": None if status == "done" else f"{self.tool} said: {self._status}",
                "finished_at": datetime.fromtimestamp(self.at - self._offset_s, UTC),
                "comparison": compare(series) if len(series) > 1 else None,
            }
        )
        self._emit(SweepEnded(self.result))

    def _start(self, line: Started, at: float) -> None:
        level = self._level(line.asked, at)
        if level is None or sum(map(len, level.runs)) >= MOST_REQUESTS or line.request_id in self._open:
            self.passed_over["of too many requests"] += 1
            return
        begins = level is not self._present
        if begins:
            self._leave()
            self._enter(level, at)
        if begins or line.run != level.run_number:
            self._end_run()
            self._run_reported = False
            request = level.begin(line.request_id, line.run, at)
            self._phase(level, request.run)
        else:
            request = level.begin(line.request_id, line.run, at)
        self._open[line.request_id] = level, request
        self._pending.events.append(
            RequestStarted(request.request_id, at, request.run, request.prompt_tokens)
        )

    def _first(self, line: Responded | GaveToken, at: float) -> None:
        found = self._open.get(line.request_id)
        if found is None:
            self.passed_over["of a request that is not in flight"] += 1
            return
        _, request = found
        if isinstance(line, Responded):
            request.responded(at, line.after_s)
        elif request.token_s is None:
            request.token_s = line.after_s
            # By the time that the tool measured, as in the tool's own tables.
            self._pending.events.append(FirstToken(request.request_id, request.told_at + line.after_s))

    def _tokens(self, line: GaveTokens, at: float) -> None:
        found = self._open.get(line.request_id)
        if found is None:
            self.passed_over["of a request that is not in flight"] += 1
            return
        if self._reads >= MOST_READS:
            self.passed_over["of too many tokens"] += 1
            return
        self._reads += 1
        found[1].gave_tokens(at, line.count, is_guess=line.is_guess)
        self._pending.bins[math.floor(at * _BINS_PER_S)] += line.count

    def _end(self, line: Ended, at: float) -> None:
        found = self._open.pop(line.request_id, None)
        if found is None:
            self.passed_over["of a request that is not in flight"] += 1
            return
        level, request = found
        level.in_flight -= 1
        self._pending.events.append(request.ended(line, at))
        if level is self._present and level.run_is_over:
            self._end_run()

    def _complete(self, line: Completed) -> None:
        self._status = line.status
        self._leave(None if line.status == "ok" else CUT)
        self.over = True

    def _level(self, asked: Asked, at: float) -> FollowedLevel | None:
        present = self._present
        if present is not None and present.asked == asked:
            return present
        name = self._targets.name(asked, self._snapshot())
        key = (name, asked)
        if key not in self._levels:
            if len(self._levels) >= MOST_LEVELS:
                return None
            self._levels[key] = FollowedLevel(name, asked, at)
        return self._levels[key]

    def _enter(self, level: FollowedLevel, at: float) -> None:
        self._present, self._reads = level, 0
        self._grow(level)
        self._emit(LoadTold(level.target, level.load, (LevelStarted(at, level.level),)))

    def _leave(self, cut_short: str | None = None) -> None:
        """End the current level, if any: report this to the view, and queue the level to compute its metrics.

        `cut_short` is the reason why the level is incomplete, or None.
        """
        level = self._present
        if level is None:
            return
        self._end_run()
        if level.loads_contexts and not self._noted_contexts:
            self._noted_contexts = True
            self._emit(Notice("bursts that only load contexts into the prefix cache are in no figure"))
        self._emit(LoadTold(level.target, level.load, (LevelEnded(self.at, level.level),)))
        self._usual_runs = max(len(level.runs), self._usual_runs or 0)
        lost = None if cut_short is None and not level.in_flight else CUT
        self.to_measure.append(ToMeasure(level, self.plan, lost))
        self._present = None

    def _end_run(self) -> None:
        """Report to the view that the newest run of the current level has ended, unless done before."""
        self.flush()
        level = self._present
        if not self._run_reported and level is not None:
            self._run_reported = True
            self._emit(RunTold(level.target, level.load, len(level.runs) - 1, ()))

    def _phase(self, level: FollowedLevel, run: int) -> None:
        # Assume that a level has as many runs as the ones before it.
        self._emit(PhaseChanged(Phase.RUNNING, level.target, level.load, run, self._usual_runs))

    def _grow(self, level: FollowedLevel | None) -> None:
        """Extend the plan by the targets known so far and the load of `level`; give the plan to the view."""
        plan = self.plan
        lengths, concurrency = list(plan.prompt_lengths), list(plan.concurrency)
        tokens = plan.tg
        if level is not None:
            lengths += [level.load.prompt_tokens]
            concurrency += [level.load.concurrency]
            tokens = tokens or level.asked.output_tokens
        self.plan = Plan(
            targets=tuple(self._targets.by_name.values()),
            concurrency=tuple(dict.fromkeys(concurrency)),
            pp=next(iter(lengths), plan.pp),
            prompt_lengths=tuple(dict.fromkeys(lengths)),
            tg=tokens,
            duration_s=math.inf,
            preset=self.tool,
        )
        self.live.grow(self.plan)

    def _plan_result(self) -> PlanResult:
        lengths = self.plan.lengths
        sources = [one.tokens_from for target in self.result.targets for one in target.levels]
        return PlanResult(
            targets=tuple(self._targets.by_name),
            concurrency=self.plan.concurrency,
            pp=lengths[0] if len(lengths) == 1 else None,
            tg=self.plan.tg,
            runs=self._usual_runs,
            preset=self.tool,
            tokens_from=next((one for one in sources if one is not None), None),
        )

    def _emit(self, event: SweepEvent) -> None:
        self.live.take(event)


def stamps_note(tool: str) -> str:
    """Return a note for the user: latencies were computed from the time stamps that the tool `tool` wrote."""
    return f"figures by {tool}'s own stamps: latencies hold its delays, most where many are in flight"
