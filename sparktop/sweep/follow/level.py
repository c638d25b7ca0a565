"""One level of another tool's benchmark: its requests, updated as lines arrive, and its metrics."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from dataclasses import field

from sparktop.model.load import (
    EndReason,
    FirstToken,
    Level,
    LoadEvent,
    RequestEnded,
    RequestStarted,
    ResponseStarted,
    Tokens,
    TokenSource,
)
from sparktop.sweep.follow.lines import Asked, Ended
from sparktop.sweep.plan.order import Load
from sparktop.sweep.plan.plan import Plan
from sparktop.sweep.result.level import level_result
from sparktop.sweep.result.results import LevelResult
from sparktop.sweep.result.trace import collect
from sparktop.sweep.run.validity import LevelFacts, judge
from sparktop.sweep.terms.request_errors import TRUNCATED, RequestFailure, request_failure
from sparktop.values import dataclass

_STATUS = re.compile(r"HTTP (\d{3})\b")


@dataclass(slots=True, eq=False)
class FollowedRequest:
    """A request of another tool; times are in monotonic seconds of this machine."""

    request_id: str
    run: int
    told_at: float
    """Time of the line that announces the request; a burst's announcements all precede its first request."""
    prompt_tokens: int
    """Number of requested prompt tokens."""
    sent_at: float | None = None
    """Start time computed from the tool's own measurement; None before the first chunk of the answer."""
    response_s: float | None = None
    """Seconds from the start to the first chunk, as the tool reports it; None before."""
    token_s: float | None = None
    """Seconds from the start to the first token, as the tool reports it; None before."""
    times: array[float] = field(default_factory=lambda: array("d"))
    """Time of each chunk with tokens, ascending."""
    counts: array[int] = field(default_factory=lambda: array("q"))
    """Number of tokens in each chunk of `times`."""
    is_guess: bool = False
    """True if the tool counted chunks as tokens, because the server sent no token ids."""
    end: RequestEnded | None = None

    @property
    def start(self) -> float:
        """Start time of the request: `sent_at`, or `told_at` as long as `sent_at` is None.

        `sent_at` is computed from the tool's measurement once the first chunk of the answer has arrived;
        `told_at` is the time when the request was announced.
        """
        return self.told_at if self.sent_at is None else self.sent_at

    def responded(self, at: float, after_s: float) -> None:
        """Record that the first chunk of the answer arrived, by a line with the time `at`.

        The tool measured `after_s` seconds from the request's start to this chunk.
        """
        if self.response_s is None:
            self.response_s = after_s
            self.sent_at = min(max(at - after_s, self.told_at), max(at, self.told_at))

    def gave_tokens(self, at: float, count: int, *, is_guess: bool) -> None:
        """Record a chunk with `count` tokens at the time `at`; `is_guess`: the count is estimated."""
        self.is_guess |= is_guess
        if not self.times and self.token_s is not None:
            at = self.start + self.token_s
        self.times.append(max(at, self.times[-1] if self.times else self.start))
        self.counts.append(count)

    def ended(self, line: Ended, at: float) -> RequestEnded:
        """Record the end of the request at the time `at`; return the load event for it."""
        at = max(at, self.times[-1] if self.times else self.start)
        error = _failure(line.error, at) if line.error else None
        guessed = self.is_guess and line.tokens > 0
        self.end = RequestEnded(
            request_id=self.request_id,
            at=at,
            reason=EndReason.LENGTH if error is None else EndReason.ERROR,
            error=error,
            prompt_tokens=line.prompt_tokens,
            generated_tokens=line.tokens or None,
            token_source=(
                TokenSource.USAGE
                if guessed
                else TokenSource.CHUNKS
                if self.is_guess
                else TokenSource.TOKEN_IDS
            ),
        )
        return self.end

    def events(self) -> Iterator[LoadEvent]:
        """Yield the load events of the request so far, in order of time."""
        name, start = self.request_id, self.start
        yield RequestStarted(name, start, self.run, self.prompt_tokens)
        if self.response_s is not None:
            yield ResponseStarted(name, start + self.response_s)
        for index, (at, count) in enumerate(zip(self.times, self.counts, strict=False)):
            yield Tokens(name, at, count) if index else FirstToken(name, at, count)
        if self.end is not None:
            yield self.end


@dataclass(slots=True, eq=False)
class FollowedLevel:
    """A level of another tool's benchmark: one load on one target, with its requests.

    `result` may be called at any time, also from another thread.
    """

    target: str
    asked: Asked
    began_at: float
    runs: list[list[FollowedRequest]] = field(default_factory=list)
    run_number: int | None = None
    """Number of the newest run in the tool's own counting; None before the first run."""
    in_flight: int = 0

    @property
    def load(self) -> Load:
        """The level's load: concurrency, and number of prompt tokens including the context."""
        return Load(self.asked.all_prompt_tokens, self.asked.concurrency)

    @property
    def level(self) -> Level:
        """The level as a `Level` of a load event, with the number of runs so far."""
        load = self.load
        return Level(
            self.target,
            load.concurrency,
            load.prompt_tokens,
            self.asked.output_tokens,
            runs=max(1, len(self.runs)),
        )

    def begin(self, request_id: int, number: int, at: float) -> FollowedRequest:
        """Add a request that is about to be sent in the run `number` of the tool, and return the request."""
        if number != self.run_number or not self.runs:
            self.runs.append([])
            self.run_number = number
        request = FollowedRequest(str(request_id), len(self.runs) - 1, at, self.asked.all_prompt_tokens)
        self.runs[-1].append(request)
        self.in_flight += 1
        return request

    @property
    def loads_contexts(self) -> bool:
        """True if each run begins with a burst whose requests only load contexts into the prefix cache.

        This is inferred from a run that has more requests than the concurrency.
        """
        most = self.asked.concurrency
        return self.asked.context_tokens > 0 and any(most < len(run) <= 2 * most for run in self.runs)

    @property
    def run_is_over(self) -> bool:
        """True if the newest run has as many requests as the concurrency, and all of them have ended."""
        return self.in_flight == 0 and bool(self.runs) and len(self.runs[-1]) >= self.asked.concurrency

    def measured(self) -> list[FollowedRequest]:
        """Return the requests that metrics are computed from.

        These are all requests, except those that only load contexts into the prefix cache.
        """
        skipped = self.asked.concurrency if self.loads_contexts else 0
        return [request for run in self.runs for request in run[skipped:]]

    def result(self, plan: Plan, cut_short: str | None) -> LevelResult:
        """Compute the metrics of the level by sparktop's definitions, and the reasons to doubt them.

        Metrics that need sparktop's own load generator or the servers' counters are missing. `cut_short`
        is the reason why the level is incomplete, or None.
        """
        events = [event for request in self.measured() for event in request.events()]
        made = level_result(self.level, collect(events))
        facts = LevelFacts(cut_short=cut_short, has_estimated_prompts=True)
        return made.model_copy(update={"validity": judge(plan, made, facts)})


def _failure(error: str, at: float) -> RequestFailure:
    found = _STATUS.match(error)
    if found is None:
        return request_failure(TRUNCATED, error, at)
    return request_failure(f"http:{found[1]}", error, at, int(found[1]))
