"""What the load generator's process and its parent say to each other; `worker_lines` writes and reads it.

The parent writes commands to its standard input, the process writes messages to its standard output. A run
gives, in this order: any number of `Batch`, then `TokenTimes` for all its requests, then one `RunFinished`.
A calibration gives one `Calibrated`. What cannot be done at all gives one `Refused`. All times are
`perf_counter` of the process, which on Linux is the monotonic clock of the whole machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sparktop.model.load import FirstToken, LoadEvent, LoadMode, RequestEnded, Tokens, TokenSource
from sparktop.sweep.plan.plan import Api, Timeouts
from sparktop.sweep.terms.request_errors import RequestFailure

BIN_S = 0.1
"""Length of a token bin."""
BATCHES_PER_S = 20
TRIED_TOKENS = 8
"""Tokens of the request that a calibration tries, at most: enough to see how they come."""


@dataclass(frozen=True, slots=True)
class WorkerTarget:
    """Where requests go."""

    url: str
    """With or without a trailing /v1."""
    model: str | None = None
    """As the server calls it, unclean; None: the server's only or first one (only for `Calibrate`)."""
    api: Api = Api.CHAT
    api_key: str | None = field(default=None, repr=False)
    router: bool = False
    """True where a router stands: its own rejections are counted apart."""


@dataclass(frozen=True, slots=True)
class Calibrate:
    """Find out how to ask a target: its model, the fields it takes, how long prompts come out."""

    id: str
    target: WorkerTarget
    prompt_tokens: int
    output_tokens: int
    seed: int = 0
    timeouts: Timeouts = Timeouts()  # noqa: RUF009 - frozen: one for all is as good as one each


@dataclass(frozen=True, slots=True)
class RunLoad:
    """Make one run of one level; calibrates first where that was not asked for before.

    A warm-up is a run like any other, with `warm_up` set.
    """

    id: str
    """Also the beginning of each request's id: unique in a sweep."""
    target: WorkerTarget
    concurrency: int
    prompt_tokens: int
    output_tokens: int
    mode: LoadMode = LoadMode.BURST
    run: int = 0
    requests: int | None = None
    """Of steady mode: most requests to start."""
    duration_s: float | None = None
    """Of steady mode: nothing is started after it."""
    ramp_s: float | None = None
    """Of steady mode: over which the first requests start; None: a tenth of the duration, 5 s at most."""
    drain: bool = True
    """Of steady mode: what is in flight after the duration may end; else it is called off."""
    seed: int = 0
    prompt_salt: str | None = None
    """Makes this run's prompts: the same one gives the same prompts. None: seed, id and salt do."""
    cache_salt: str | None = None
    """Fresh for each run: each request adds its number. None: no salt is sent."""
    timeouts: Timeouts = Timeouts()  # noqa: RUF009 - frozen: one for all is as good as one each
    warm_up: bool = False
    """Not to be measured; changes nothing but this word."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """Call off what is in flight: the run ends at once, its requests with `abort`."""


@dataclass(frozen=True, slots=True)
class Quit:
    """End the process; what is in flight is called off. The end of its standard input does the same."""


Command = Calibrate | RunLoad | Cancel | Quit


@dataclass(frozen=True, slots=True)
class Ready:
    """The process listens."""

    pid: int
    loop: str
    """`uvloop` or `asyncio`."""
    most_connections: int | None
    """As many as its descriptor limit allows; None where there is no limit."""


@dataclass(frozen=True, slots=True)
class PromptLength:
    """How well the length of prompts is known."""

    asked_tokens: int
    got_tokens: int | None
    """Of the prompt that was tried, the server's chat template included; None where nobody told."""
    exact: bool
    """True when every prompt has that length."""
    source: str
    """`tokenize`: each word was counted by the server; `usage`: whole prompts were, of the same words;
    `words`: nobody counts, a word is taken for a token."""


@dataclass(frozen=True, slots=True)
class Calibrated:
    """What a calibration found; `failure` is set when requests do not work at all."""

    id: str
    model: str | None
    """The model to ask for, as the server calls it: unclean."""
    models: tuple[str, ...]
    """All that the server serves, unclean; empty where it does not tell."""
    answered_model: str | None
    """What the answer said that it came from, clean."""
    dropped_fields: Mapping[str, str]
    """Fields that the server refused and that are not sent, with its words, clean."""
    token_source: TokenSource | None
    prompt: PromptLength | None
    generated_tokens: int | None
    """Of the request that was tried; it asked for `tried_tokens`."""
    tried_tokens: int | None
    served_by: str | None
    requests: int
    """Completions that this took: they count in the server's counters."""
    prompt_tokens_used: int
    """Prompt tokens of those, as far as told."""
    generated_tokens_used: int
    connect_ms: float | None
    failure: RequestFailure | None = None


@dataclass(frozen=True, slots=True)
class TokenBin:
    """Tokens that came in a tenth of a second: for graphs while a run goes on."""

    at: float
    """Beginning of the bin."""
    served_by: str | None
    tokens: int


@dataclass(frozen=True, slots=True)
class Batch:
    """What happened since the last batch: every event but `Tokens`, which is told in bins."""

    id: str
    at: float
    in_flight: int
    events: tuple[LoadEvent, ...]
    bins: tuple[TokenBin, ...]
    """The same bin may come again with what was added to it: add them up."""


@dataclass(frozen=True, slots=True)
class RequestTokens:
    """When the tokens of one request came: a time and a count for each read that brought some."""

    at: Sequence[float]
    counts: Sequence[int]
    answer_from: int = 0
    """Index of the first read that held something else than reasoning."""

    def events(self, request_id: str) -> Iterator[FirstToken | Tokens]:
        """Yield the event of each read."""
        pairs = zip(self.at, self.counts, strict=True)
        for index, (at, count) in enumerate(pairs):
            kind = Tokens if index else FirstToken
            yield kind(request_id, at, count, index < self.answer_from)


@dataclass(frozen=True, slots=True)
class TokenTimes:
    """The exact times of the tokens of some of a finished run's requests."""

    id: str
    requests: Mapping[str, RequestTokens]


@dataclass(frozen=True, slots=True)
class LagFigures:
    """How late the event loop's timers came, in milliseconds."""

    mean: float
    p50: float
    p99: float
    max: float
    count: int


@dataclass(frozen=True, slots=True)
class ClientHealth:
    """How the generator itself fared in a run."""

    loop: str
    cpu_percent: float
    """Of one core."""
    loop_lag_ms: LagFigures | None
    connect_ms: float | None
    """Mean of the connections opened for the run; None when none was."""
    connections: int
    """Opened for the run."""
    most_in_flight: int


@dataclass(frozen=True, slots=True)
class RunFinished:
    """A run is over and all of it has been told."""

    id: str
    run: int
    started_at: float
    ended_at: float
    cancelled: bool
    warm_up: bool
    started: int
    """Requests whose body was written."""
    ended: int
    """Requests that ended, those included whose connection never opened."""
    failed: int
    tokens: int
    """As counted while they came (chunks where no ids were told)."""
    health: ClientHealth


@dataclass(frozen=True, slots=True)
class Refused:
    """A command that cannot be carried out at all."""

    id: str
    failure: RequestFailure


@dataclass(frozen=True, slots=True)
class WorkerEnded:
    """The process is gone; nothing follows. Said by the parent's side, never by the process."""

    returncode: int | None
    failure: RequestFailure | None
    """None when it was asked to end."""


WorkerMessage = Ready | Calibrated | Batch | TokenTimes | RunFinished | Refused | WorkerEnded


def with_tokens(events: Iterable[LoadEvent], tokens: Mapping[str, RequestTokens]) -> list[LoadEvent]:
    """Insert the exact token events of each request before its end.

    They replace its `FirstToken`, which was written before the server's counts were known.
    """
    whole: list[LoadEvent] = []
    for event in events:
        if isinstance(event, FirstToken) and event.request_id in tokens:
            continue
        if isinstance(event, RequestEnded) and (times := tokens.get(event.request_id)) is not None:
            whole.extend(times.events(event.request_id))
        whole.append(event)
    return whole
