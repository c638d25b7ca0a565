"""Commands and messages between the load generator's process and its parent; `worker_lines` encodes them.

The parent writes commands to the process's standard input, and the process writes messages to its standard
output. A run sends, in this order: any number of `Batch`, then `TokenTimes` for all its requests, then one
`RunFinished`. A calibration sends one `Calibrated`. A command that cannot be executed is answered by one
`Refused`. All times are `perf_counter` of the process, which on Linux is the monotonic clock of the machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sparktop.model.load import FirstToken, LoadEvent, LoadMode, RequestEnded, Tokens, TokenSource
from sparktop.sweep.plan.plan import Api, Timeouts
from sparktop.sweep.terms.request_errors import RequestFailure

BIN_S = 0.1
"""Length of a token bin in seconds."""
BATCHES_PER_S = 20
TRIED_TOKENS = 8
"""Maximum tokens of the trial request of a calibration: enough to see how tokens are sent."""


@dataclass(frozen=True, slots=True)
class WorkerTarget:
    """The server that requests go to."""

    url: str
    """With or without a trailing /v1."""
    model: str | None = None
    """Name that the server uses, not cleaned; None (only in `Calibrate`): its first or only model."""
    api: Api = Api.CHAT
    api_key: str | None = field(default=None, repr=False)
    router: bool = False
    """True for a router: its own rejections are counted separately."""


@dataclass(frozen=True, slots=True)
class Calibrate:
    """Find out how to send requests to a target: its model, the accepted fields, the length of prompts."""

    id: str
    target: WorkerTarget
    prompt_tokens: int
    output_tokens: int
    seed: int = 0
    timeouts: Timeouts = Timeouts()  # noqa: RUF009 - frozen: one for all is as good as one each


@dataclass(frozen=True, slots=True)
class RunLoad:
    """Execute one run of one level; calibrate first if that was not done before.

    A warm-up is a run like any other, with `warm_up` set.
    """

    id: str
    """Unique in a sweep; also the prefix of each request's id."""
    target: WorkerTarget
    concurrency: int
    prompt_tokens: int
    output_tokens: int
    mode: LoadMode = LoadMode.BURST
    run: int = 0
    requests: int | None = None
    """Steady mode: maximum number of requests to start."""
    duration_s: float | None = None
    """Steady mode: seconds after which no request is started."""
    ramp_s: float | None = None
    """Steady mode: seconds over which the first requests are started; None: a tenth of the duration, at most
    5 s."""
    drain: bool = True
    """Steady mode: True lets requests in flight finish after the duration, False cancels them."""
    seed: int = 0
    prompt_salt: str | None = None
    """Determines the prompts of this run: the same salt gives the same prompts. None: made of seed, id and
    cache salt."""
    cache_salt: str | None = None
    """New for each run, and each request appends its number. None: no salt is sent."""
    timeouts: Timeouts = Timeouts()  # noqa: RUF009 - frozen: one for all is as good as one each
    warm_up: bool = False
    """True for a run that is not measured; it is executed like any other."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel what is in flight: the run ends at once, and its requests with `abort`."""


@dataclass(frozen=True, slots=True)
class Quit:
    """Exit the process; what is in flight is cancelled. The end of its standard input has the same effect."""


Command = Calibrate | RunLoad | Cancel | Quit


@dataclass(frozen=True, slots=True)
class Ready:
    """The process accepts commands."""

    pid: int
    loop: str
    """`uvloop` or `asyncio`."""
    most_connections: int | None
    """Number of connections that the limit of open files allows; None for no limit."""


@dataclass(frozen=True, slots=True)
class PromptLength:
    """The length of prompts and how exactly it is known."""

    asked_tokens: int
    got_tokens: int | None
    """Length of the trial prompt including the server's chat template; None if the server does not report it.
    """
    exact: bool
    """True if every prompt has exactly that length."""
    source: str
    """`tokenize`: the server counted each word; `usage`: the server counted complete prompts of the same
    words; `words`: no counts are available, so each word is assumed to be a token."""


@dataclass(frozen=True, slots=True)
class Calibrated:
    """The result of a calibration; `failure` is set if requests do not work at all."""

    id: str
    model: str | None
    """Model to request, as the server names it (not cleaned)."""
    models: tuple[str, ...]
    """All models of the server, not cleaned; empty if it does not list them."""
    answered_model: str | None
    """Model named in the answer, cleaned."""
    dropped_fields: Mapping[str, str]
    """Fields that the server refused and that are no longer sent, with its error messages, cleaned."""
    token_source: TokenSource | None
    prompt: PromptLength | None
    generated_tokens: int | None
    """Tokens of the trial request, which asked for `tried_tokens`."""
    tried_tokens: int | None
    served_by: str | None
    requests: int
    """Completions that the calibration used: they are included in the server's counters."""
    prompt_tokens_used: int
    """Prompt tokens of those completions, as far as reported."""
    generated_tokens_used: int
    connect_ms: float | None
    failure: RequestFailure | None = None


@dataclass(frozen=True, slots=True)
class TokenBin:
    """Tokens that arrived in a tenth of a second, for graphs during a run."""

    at: float
    """Start of the bin."""
    served_by: str | None
    tokens: int


@dataclass(frozen=True, slots=True)
class Batch:
    """The events since the last batch, except `Tokens`, which are summed up in bins."""

    id: str
    at: float
    in_flight: int
    events: tuple[LoadEvent, ...]
    bins: tuple[TokenBin, ...]
    """A bin may be sent again with the tokens that were added to it: the parts must be summed."""


@dataclass(frozen=True, slots=True)
class RequestTokens:
    """The arrival of a request's tokens: time and count of each read that brought some."""

    at: Sequence[float]
    counts: Sequence[int]
    answer_from: int = 0
    """Index of the first read that holds more than reasoning."""

    def events(self, request_id: str) -> Iterator[FirstToken | Tokens]:
        """Yield the event of each read."""
        pairs = zip(self.at, self.counts, strict=True)
        for index, (at, count) in enumerate(pairs):
            kind = Tokens if index else FirstToken
            yield kind(request_id, at, count, index < self.answer_from)


@dataclass(frozen=True, slots=True)
class TokenTimes:
    """The exact token times of some requests of a finished run."""

    id: str
    requests: Mapping[str, RequestTokens]


@dataclass(frozen=True, slots=True)
class LagFigures:
    """Delays of the event loop's timers, in milliseconds."""

    mean: float
    p50: float
    p99: float
    max: float
    count: int


@dataclass(frozen=True, slots=True)
class ClientHealth:
    """The health of the load generator during a run."""

    loop: str
    cpu_percent: float
    """Percent of one core."""
    loop_lag_ms: LagFigures | None
    connect_ms: float | None
    """Mean time in milliseconds to open a connection of the run; None if none was opened."""
    connections: int
    """Connections opened for the run."""
    most_in_flight: int


@dataclass(frozen=True, slots=True)
class RunFinished:
    """A run is over and all its events have been sent."""

    id: str
    run: int
    started_at: float
    ended_at: float
    cancelled: bool
    warm_up: bool
    started: int
    """Requests whose body was written."""
    ended: int
    """Requests that ended, including those whose connection never opened."""
    failed: int
    tokens: int
    """Tokens counted on arrival (chunks where token ids are missing)."""
    health: ClientHealth


@dataclass(frozen=True, slots=True)
class Refused:
    """A command cannot be executed."""

    id: str
    failure: RequestFailure


@dataclass(frozen=True, slots=True)
class WorkerEnded:
    """The process has exited; the last message. Made by the parent's side, never by the process."""

    returncode: int | None
    failure: RequestFailure | None
    """None if the process was asked to exit."""


WorkerMessage = Ready | Calibrated | Batch | TokenTimes | RunFinished | Refused | WorkerEnded


def with_tokens(events: Iterable[LoadEvent], tokens: Mapping[str, RequestTokens]) -> list[LoadEvent]:
    """Return the events with the exact token events of each request inserted before its end.

    They replace its `FirstToken`, which was sent before the server's counts were known.
    """
    complete: list[LoadEvent] = []
    for event in events:
        if isinstance(event, FirstToken) and event.request_id in tokens:
            continue
        if isinstance(event, RequestEnded) and (times := tokens.get(event.request_id)) is not None:
            complete.extend(times.events(event.request_id))
        complete.append(event)
    return complete
