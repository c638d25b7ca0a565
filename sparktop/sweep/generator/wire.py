"""The commands and messages between the load generator's process and its parent: a line of JSON each.

The parent writes commands to the process's standard input, and the process writes messages to its standard
output. For a load run the process sends, in this order: any number of `Batch`, then a `TokenTimes` for each
request, then one `RunFinished`. For a calibration it sends any number of `Busy`, then one `Calibrated`; for
a command that cannot be executed one `Refused`. All times are `perf_counter` of the process, which on Linux
is the monotonic clock of the machine. Both processes run the same version of this package, so a line that
cannot be decoded is a programming error.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from sparktop.model.failure import RequestFailure
from sparktop.model.load import (
    LoadEvent,
    LoadMode,
    LoadPoint,
)
from sparktop.model.plain import hide_in_repr
from sparktop.sweep.plan.conversations import ConversationPreset
from sparktop.sweep.plan.own_requests import PromptFile, texts_of
from sparktop.sweep.plan.plan import Api, Timeouts
from sparktop.sweep.plan.traces import TraceChoice

BIN_S = 0.1
"""Length of a token bin in seconds."""
BATCHES_PER_S = 20
"""Most batches of events that a run sends in a second."""
_SHORTEST_SECRET = 8
"""Characters of a value that is hidden in messages; shorter ones occur in any text by chance."""
TRIED_TOKENS = 8
"""Output tokens of the main trial request of a calibration: enough to see how the server sends tokens."""


@hide_in_repr("api_key", "headers", "extra_body")
class WorkerTarget(Struct, frozen=True):
    """The server or router that requests are sent to."""

    url: str
    """With or without a trailing /v1."""
    model: str | None = None
    """Name that the server uses, not cleaned; None (only in `Calibrate`): its first or only model."""
    api: Api = Api.CHAT
    api_key: str | None = None
    router: bool = False
    """True for a router. Rejections by the router itself are counted separately from a server's."""
    tls_ca: str | None = None
    """Path of a certificate file that verifies the server's; None: the system's certificates do."""
    headers: tuple[tuple[str, str], ...] = ()
    """(name, value) of further headers of each request."""
    extra_body: str = ""
    """Further fields of each request's body as a JSON object; "" for none."""
    prompts: PromptFile | None = None
    """The user's own prompts, which are sent in place of made ones; None for made ones."""

    @property
    def own_texts(self) -> tuple[str, ...]:
        """Texts to hide in messages: the long ones of the headers and of the body that the user added."""
        texts = [value for _, value in self.headers]
        texts += texts_of(json.loads(self.extra_body)) if self.extra_body else ()
        return tuple(value for value in dict.fromkeys(texts) if len(value) >= _SHORTEST_SECRET)


class Calibrate(Struct, frozen=True, tag=True):
    """Command: find a target's model, the request fields that it accepts, and how to make exact prompts."""

    id: str
    target: WorkerTarget
    prompt_tokens: int
    output_tokens: int
    seed: int = 0
    timeouts: Timeouts = Timeouts()


LONG = "-long"
"""Follows the id of a run in the ids of the long prompts beside its requests."""


class RunLoad(Struct, frozen=True, tag=True):
    """Command: execute one load run of a level.

    The target was calibrated for the prompt length before. A warm-up is a run like any other, with `warm_up`
    set.

    In open mode, requests due in the first `ramp_s` seconds are not measured, and those due in the
    `duration_s` seconds after them are. In agents mode, calls of conversations under way are sent first, then
    all agents start within `ramp_s` seconds, and calls that start in the `duration_s` seconds after that are
    measured. In both, the load goes on until the measured ones have ended, or for `tail_s` seconds.
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
    """Steady mode: seconds after which no request is started. Open mode: None where requests wait for
    answers, so that how long they take is not known before."""
    ramp_s: float | None = None
    """Steady mode: seconds over which the first requests are started; None: a tenth of the duration, at most
    5 s."""
    tail_s: float = 60.0
    seed: int = 0
    prompt_salt: str = ""
    """Text that determines the prompts of this run: equal salts give equal prompts."""
    cache_salt: str | None = None
    """Salt for the servers' prefix caches, to which each request appends its number. None: no salt is
    sent."""
    timeouts: Timeouts = Timeouts()
    rate: LoadPoint | None = None
    """Open mode: the requests per second. `concurrency` is then the most requests in flight: beyond it they
    wait in the client."""
    arrivals: str = ""
    """Open mode: how the gaps between requests vary; see `sparktop.sweep.plan.arrivals`."""
    draw_seed: str = ""
    """Determines the arrivals, or the conversations."""
    context_tokens: int = 0
    """Burst mode: tokens of text before each prompt (llama-benchy's depth), a new text for each request. Runs
    of one `cache_salt` have equal texts, so that the second finds them in the server's prefix cache."""
    context_alone: bool = False
    """True: a few words stand in place of the prompt, so that the run only fills the cache."""
    beside_tokens: int = 0
    """Steady mode with a duration: tokens of long prompts beside the requests, each of which is sent when the
    one before has ended; 0 for none."""
    trace: TraceChoice | None = None
    """Open mode: the recorded traffic to replay, in place of arrivals; `rate` is its mean."""
    conversations: ConversationPreset | None = None
    """Agents mode: what the `concurrency` agents do."""
    max_model_len: int | None = None
    """The server's context length in tokens; None if unknown."""
    text: str | None = None
    """The kind of built-in text that the prompts are, of about `prompt_tokens` tokens; None for others."""
    warm_up: bool = False
    """True for a run that is not measured; it is executed like any other."""


class Cancel(Struct, frozen=True, tag=True):
    """Command: cancel the present run or calibration and all queued commands.

    A run ends at once, and its requests in flight end with the reason `abort`.
    """


Command = Calibrate | RunLoad | Cancel
"""What the parent writes."""


class Ready(Struct, frozen=True, tag=True):
    """First message of the process: it accepts commands from now on."""

    most_connections: int | None
    """Number of connections that the limit of open files allows; None for no limit."""


class Calibrated(Struct, frozen=True, tag=True):
    """Message: the result of a calibration, the trial requests that find out how to use a server.

    `failure` is set if the server cannot process requests at all.
    """

    id: str
    model: str | None = None
    """Model to request, as the server names it (not cleaned)."""
    models: tuple[str, ...] = ()
    """All models of the server, not cleaned; empty if it does not list them."""
    dropped_fields: Mapping[str, str] = {}
    """Request fields that the server refused and that are left out from now on, each with the error
    message."""
    prompt_tokens: int | None = None
    """Length of a trial prompt with the server's chat template; None if the server does not report it."""
    is_exact: bool | None = None
    """Whether every prompt has exactly the length asked for; None for the user's own prompts."""
    failure: RequestFailure | None = None


class TokenBin(Struct, frozen=True):
    """Tokens that arrived from one backend in a tenth of a second (`BIN_S`), for live graphs."""

    at: float
    """Start of this tenth of a second."""
    served_by: str | None
    tokens: int


class Batch(Struct, frozen=True, tag=True):
    """Message: what happened in a run since the last batch; at most `BATCHES_PER_S` come per second.

    `events` include the first token of each request. Later tokens are only summed by time and backend in
    `bins`.
    """

    id: str
    at: float
    in_flight: int
    events: tuple[LoadEvent, ...]
    bins: tuple[TokenBin, ...]
    """Tokens that arrived since the last batch. The same bin may occur in two batches: add the tokens of
    both."""


class TokenTimes(Struct, frozen=True, tag=True):
    """Message: when the tokens of a request of a finished run arrived: each read that brought any."""

    id: str
    request_id: str
    at: Sequence[float]
    counts: Sequence[int]
    """Tokens of each read."""
    answer_from: int = 0
    """Index of the first read with more than reasoning."""


class ClientHealth(Struct, frozen=True):
    """The health of the load generator during a run."""

    loop: str
    """Implementation of the event loop: "uvloop" or "asyncio"."""
    cpu_percent: float
    """CPU use in percent of one core."""
    loop_lag_ms: Mapping[str, float]
    """Lag of its event loop in milliseconds: mean, p50, p90, p99 and max; empty where it was not measured."""
    connect_ms: float | None
    """Mean time in milliseconds to open a connection of the run; None if none was opened."""
    core_wait_ms: float | None = None
    """Mean milliseconds for which the process waited for a CPU core each time it had something to do; None if
    the kernel does not count that."""


class RunFinished(Struct, frozen=True, tag=True):
    """Message: a load run is over, and all its events have been sent."""

    id: str
    started_at: float
    ended_at: float
    cancelled: bool
    health: ClientHealth


class Refused(Struct, frozen=True, tag=True):
    """Message: the command `id` cannot be executed, or was cancelled before it began."""

    id: str
    failure: RequestFailure


class Busy(Struct, frozen=True, tag=True):
    """Message: the calibration `id` waits, because its server is busy; `words` say how long, and for what."""

    id: str
    words: str


WorkerMessage = Ready | Busy | Calibrated | Batch | TokenTimes | RunFinished | Refused
"""What the parent reads."""


ALIVE_S = 1.0
"""Seconds between two signs of life."""
ALIVE = b"\n"
"""The line that the load generator writes as a sign of life."""


def _plain(value: object) -> object:
    """Return an array of times as a list."""
    if isinstance(value, array):
        return value.tolist()
    raise TypeError(f"cannot be sent: {type(value).__name__}")


_encoder = msgspec.json.Encoder(enc_hook=_plain)
COMMANDS: msgspec.json.Decoder[Command] = msgspec.json.Decoder(Command)
MESSAGES: msgspec.json.Decoder[WorkerMessage] = msgspec.json.Decoder(WorkerMessage)
"""Read a line; one that is no command or message of this version raises `msgspec.MsgspecError`."""


def encode_line(message: Command | WorkerMessage) -> bytes:
    """Return a command or a message as one line of JSON, line end included."""
    return _encoder.encode(message) + b"\n"
