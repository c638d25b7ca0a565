"""The commands and messages between the load generator's process and its parent, and their encoding."""

from __future__ import annotations

import base64
import json
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, to_builtins

from sparktop.model.conversation import CallStart, ConversationCall
from sparktop.model.failure import FailureKind
from sparktop.model.load import (
    EndReason,
    FirstToken,
    LoadEvent,
    LoadMode,
    RequestEnded,
    RequestStarted,
    ResponseStarted,
    RunEnded,
    RunStarted,
    Tokens,
    TokenSource,
)
from sparktop.model.structs import hide_in_repr
from sparktop.sweep.plan.conversations import ConversationPreset, Draw
from sparktop.sweep.plan.own_requests import PromptFile, texts_of
from sparktop.sweep.plan.plan import Api, Timeouts
from sparktop.sweep.plan.traces import TraceChoice, TraceFormat
from sparktop.sweep.terms.request_errors import RequestFailure, error_word

# Commands and messages between the load generator's process and its parent; `wire.lines` encodes them.
#
# The parent writes commands to the process's standard input, and the process writes messages to its
# standard
# output. For a load run the process sends, in this order: any number of `Batch`, then `TokenTimes` for all
# requests, then one `RunFinished`. For a calibration it sends any number of `Busy`, then one `Calibrated`;
# for
# a command that cannot be executed one `Refused`. All times are `perf_counter` of the process, which on
# Linux
# is the monotonic clock of the machine.


BIN_S = 0.1
"""Length of a token bin in seconds."""
BATCHES_PER_S = 20
_SHORTEST_SECRET = 8
"""Shorter values stand in any text."""
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
        """Values of headers and texts of the body that the user added, if they are as long as secrets are."""
        given = [value for _, value in self.headers]
        given += texts_of(json.loads(self.extra_body)) if self.extra_body else ()
        return tuple(value for value in dict.fromkeys(given) if len(value) >= _SHORTEST_SECRET)


class Calibrate(Struct, frozen=True):
    """Command: find a target's model, the request fields that it accepts, and how to make exact prompts."""

    id: str
    target: WorkerTarget
    prompt_tokens: int
    output_tokens: int
    seed: int = 0
    timeouts: Timeouts = Timeouts()


class OpenLoop(Struct, frozen=True):
    """The arrivals of an open-loop run; see `sparktop.sweep.plan.arrivals`.

    Requests due in the first `warm_up_s` seconds are not measured. Those due in the `duration_s` seconds
    after them are. Later ones keep the load on until the measured ones have ended, or for `tail_s` seconds.
    """

    pattern: str
    per_s: float
    end_per_s: float | None
    warm_up_s: float
    duration_s: float
    tail_s: float
    seed: str


class ContextLoad(Struct, frozen=True):
    """Text before the prompt of each request (llama-benchy's depth), a new one for each request of a run."""

    tokens: int
    salt: str
    """Determines the text: runs with equal salts have equal contexts, so that the second finds them in the
    server's prefix cache."""
    cache_salt: str
    """Salt for the servers' prefix caches in place of that of the run."""
    alone: bool = False
    """True: a few words stand in place of the prompt, so that the run only fills the cache."""


class ConversationLoad(Struct, frozen=True):
    """The agents of a run; see `sparktop.sweep.plan.conversations`.

    Calls of conversations under way are sent first. Then all agents start within `ramp_s` seconds, and calls
    that start in the `duration_s` seconds after that are measured. The load goes on until these have ended,
    or for `tail_s` seconds.
    """

    preset: ConversationPreset
    seed: str
    duration_s: float
    ramp_s: float = 0.0
    tail_s: float = 60.0
    max_model_len: int | None = None
    """The server's context length in tokens; None if unknown."""


class RunLoad(Struct, frozen=True):
    """Command: execute one load run of a level.

    If this target was not calibrated for the prompt length, the process calibrates it first. A warm-up is a
    run like any other, with `warm_up` set.
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
    """Text that determines the prompts of this run: equal salts give equal prompts. None: a salt is made of
    `seed`, `id` and `cache_salt`."""
    cache_salt: str | None = None
    """Salt for the servers' prefix caches, to which each request appends its number. None: no salt is
    sent."""
    timeouts: Timeouts = Timeouts()
    open_loop: OpenLoop | None = None
    """Open mode: when requests are due. `concurrency` is then the most requests in flight: beyond it they
    wait in the client."""
    context: ContextLoad | None = None
    """Burst mode: text before each prompt."""
    trace: TraceChoice | None = None
    """Open mode: the recorded traffic to replay. It replaces the pattern and the times of `open_loop`."""
    conversations: ConversationLoad | None = None
    """Agents mode: what the `concurrency` agents do."""
    warm_up: bool = False
    """True for a run that is not measured; it is executed like any other."""


class Cancel(Struct, frozen=True):
    """Command: cancel the present run or calibration and all queued commands.

    A run ends at once, and its requests in flight end with the reason `abort`.
    """


class Quit(Struct, frozen=True):
    """Command: exit, cancelling everything in flight. The end of standard input has the same effect."""


Command = Calibrate | RunLoad | Cancel | Quit


class Ready(Struct, frozen=True):
    """First message of the process: it accepts commands from now on."""

    pid: int
    loop: str
    """`uvloop` or `asyncio`."""
    most_connections: int | None
    """Number of connections that the limit of open files allows; None for no limit."""


class PromptLength(Struct, frozen=True):
    """The number of tokens of a calibration's prompts, whether it is exact, and how it is known."""

    asked_tokens: int
    got_tokens: int | None
    """Length of a trial prompt with the server's chat template; None if the server does not report it."""
    exact: bool
    """True if every prompt has exactly `asked_tokens` tokens."""
    source: str
    """How the length is known. `tokenize`: the server counted each word. `usage`: the server counted complete
    prompts of the same words. `words`: the server counts nothing, so each word is assumed to be a token."""


class Calibrated(Struct, frozen=True):
    """Message: the result of a calibration, the trial requests that find out how to use a server.

    `failure` is set if the server cannot process requests at all.
    """

    id: str
    model: str | None
    """Model to request, as the server names it (not cleaned)."""
    models: tuple[str, ...]
    """All models of the server, not cleaned; empty if it does not list them."""
    answered_model: str | None
    """Model named in the answer, cleaned."""
    dropped_fields: Mapping[str, str]
    """Request fields that the server refused and that are left out from now on, each with the error
    message."""
    token_source: TokenSource | None
    prompt: PromptLength | None
    generated_tokens: int | None
    """Tokens that the trial request generated; it asked for `tried_tokens`."""
    tried_tokens: int | None
    served_by: str | None
    requests: int
    """Number of completion requests of the calibration, which the server's counters include."""
    prompt_tokens_used: int
    """Prompt tokens of those requests, as far as the server reports them."""
    generated_tokens_used: int
    connect_ms: float | None
    failure: RequestFailure | None = None


class TokenBin(Struct, frozen=True):
    """Tokens that arrived from one backend in a tenth of a second (`BIN_S`), for live graphs."""

    at: float
    """Start of this tenth of a second."""
    served_by: str | None
    tokens: int


class Batch(Struct, frozen=True):
    """Message: what happened in a run since the last batch.

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


class RequestTokens(Struct, frozen=True):
    """When the tokens of a request arrived: time and token count of each read that brought tokens."""

    at: Sequence[float]
    counts: Sequence[int]
    answer_from: int = 0
    """Index of the first read with more than reasoning."""

    def events(self, request_id: str) -> Iterator[FirstToken | Tokens]:
        """Yield a load event for each read: `FirstToken` for the first one, `Tokens` for the others."""
        pairs = zip(self.at, self.counts, strict=True)
        for index, (at, count) in enumerate(pairs):
            kind = Tokens if index else FirstToken
            yield kind(request_id, at, count, index < self.answer_from)


class TokenTimes(Struct, frozen=True):
    """Message: the exact token times of some requests of a finished run, by request id."""

    id: str
    requests: Mapping[str, RequestTokens]


class LagFigures(Struct, frozen=True):
    """Lag of the load generator's event loop in milliseconds; `count` is the number of samples."""

    mean: float
    p50: float
    p99: float
    max: float
    count: int
    p90: float | None = None


class ClientHealth(Struct, frozen=True):
    """The health of the load generator during a run."""

    loop: str
    cpu_percent: float
    """CPU use in percent of one core."""
    loop_lag_ms: LagFigures | None
    connect_ms: float | None
    """Mean time in milliseconds to open a connection of the run; None if none was opened."""
    connections: int
    """Number of connections that were opened for the run."""
    most_in_flight: int
    """Maximum number of requests in flight at the same time."""
    core_wait_ms: float | None = None
    """Mean milliseconds for which the process waited for a CPU core each time it had something to do; None if
    the kernel does not count that."""


class RunFinished(Struct, frozen=True):
    """Message: a load run is over, and all its events have been sent."""

    id: str
    run: int
    started_at: float
    ended_at: float
    cancelled: bool
    warm_up: bool
    started: int
    """Number of requests that were written to a connection."""
    ended: int
    """Number of requests that ended, including those whose connection could not be opened."""
    failed: int
    tokens: int
    """Tokens as counted on arrival, before the exact counts are known."""
    health: ClientHealth


class Refused(Struct, frozen=True):
    """Message: the command `id` cannot be executed, or was cancelled before it began."""

    id: str
    failure: RequestFailure


class Busy(Struct, frozen=True):
    """Message: the calibration `id` waits, because its server is busy; `words` say how long, and for what."""

    id: str
    words: str


class WorkerEnded(Struct, frozen=True):
    """The last message: the process has exited. Created by the parent, not sent by the process."""

    returncode: int | None
    failure: RequestFailure | None
    """None if the process was asked to exit."""


WorkerMessage = Ready | Busy | Calibrated | Batch | TokenTimes | RunFinished | Refused | WorkerEnded


def with_tokens(events: Iterable[LoadEvent], tokens: Mapping[str, RequestTokens]) -> list[LoadEvent]:
    """Return the events of a run, with the exact token times of each request as events before its end.

    `tokens` are the exact times by request id. For these requests, they replace the `FirstToken` event, which
    was sent before the server's token counts were known.
    """
    complete: list[LoadEvent] = []
    for event in events:
        if isinstance(event, FirstToken) and event.request_id in tokens:
            continue
        if isinstance(event, RequestEnded) and (times := tokens.get(event.request_id)) is not None:
            complete.extend(times.events(event.request_id))
        complete.append(event)
    return complete


# Encode and decode load events as short JSON arrays, because a load run may have thousands of them.


def encode_event(event: LoadEvent) -> list[Any]:  # noqa: PLR0911 - one for each kind of event
    """Return an event as a list for JSON that starts with a letter for the event's type.

    Raises:
        TypeError: the event is a level's start or end, which the load generator does not send.
    """
    match event:
        case RequestStarted():
            place = None if event.call is None else _place(event.call)
            return [
                "s",
                event.request_id,
                event.at,
                event.run,
                event.prompt_tokens,
                event.due,
                place,
                event.resent,
            ]
        case ResponseStarted():
            return ["r", event.request_id, event.at]
        case FirstToken():
            return ["f", event.request_id, event.at, event.count, event.reasoning]
        case Tokens():
            return ["t", event.request_id, event.at, event.count, event.reasoning]
        case RequestEnded():
            return ["e", *_ended(event)]
        case RunStarted():
            return ["R", event.at, event.run, event.measured]
        case RunEnded():
            return ["E", event.at, event.run]
        case _:
            raise TypeError(f"no event of a run: {type(event).__name__}")


def decode_event(found: list[Any]) -> LoadEvent:  # noqa: PLR0911 - as above
    """Return the event that `encode_event` encoded as the list `found`.

    Raises:
        ValueError: the list starts with an unknown letter.
    """
    letter, rest = found[0], found[1:]
    match letter:
        case "s":
            request_id, at, run, prompt, due, place, resent = rest
            call = None if place is None else _read_place(place)
            return RequestStarted(request_id, at, run, prompt, due, call, resent)
        case "r":
            return ResponseStarted(*rest)
        case "f":
            return FirstToken(*rest)
        case "t":
            return Tokens(*rest)
        case "e":
            return _read_ended(rest)
        case "R":
            at, run, measured = rest
            return RunStarted(at, run, None if measured is None else (measured[0], measured[1]))
        case "E":
            return RunEnded(*rest)
        case _:
            raise ValueError(f"no event of a run: {letter!r}")


def encode_failure(failure: RequestFailure) -> list[Any]:
    """Return a failure as a list for JSON: [kind, message, time, code, HTTP status, seconds to retry]."""
    return [failure.kind.value, failure.message, failure.at, failure.word, failure.status, failure.retry_s]


def decode_failure(found: list[Any]) -> RequestFailure:
    """Return the failure that `encode_failure` encoded as the list `found`."""
    return RequestFailure(FailureKind(found[0]), *found[1:])


def _place(call: ConversationCall) -> list[Any]:
    return [
        call.lane,
        call.conversation,
        call.turn,
        call.request,
        call.start.value,
        None if call.then is None else call.then.value,
        call.known_tokens,
        call.new_tokens,
        call.compacted,
        call.measured,
    ]


def _read_place(found: list[Any]) -> ConversationCall:
    lane, conversation, turn, request, start, then, *more = found
    after = None if then is None else CallStart(then)
    return ConversationCall(lane, conversation, turn, request, CallStart(start), after, *more)


def _ended(event: RequestEnded) -> list[Any]:
    error = event.error
    if error is not None and not isinstance(error, RequestFailure):
        error = RequestFailure(error.kind, error.message, error.at, error_word(error))
    return [
        event.request_id,
        event.at,
        event.reason.value,
        None if error is None else encode_failure(error),
        event.prompt_tokens,
        event.cached_tokens,
        event.generated_tokens,
        None if event.token_source is None else event.token_source.value,
        event.served_by,
        event.hidden_before,
        event.spans_all,
        event.router_ms,
    ]


def _read_ended(rest: list[Any]) -> RequestEnded:
    request_id, at, reason, error, prompt, cached, generated, source, served_by, *more = rest
    hidden_before, spans_all, router_ms = more
    return RequestEnded(
        request_id=request_id,
        at=at,
        reason=EndReason(reason),
        error=None if error is None else decode_failure(error),
        prompt_tokens=prompt,
        cached_tokens=cached,
        generated_tokens=generated,
        token_source=None if source is None else TokenSource(source),
        served_by=served_by,
        hidden_before=hidden_before,
        spans_all=spans_all,
        router_ms=router_ms,
    )


# Encode and decode the commands to the load generator and its messages: one JSON object per line.
#
# Both processes run the same version of this package, so a line that cannot be decoded is a programming
# error.


ALIVE_S = 1.0
ALIVE = b"\n"
"""The line that the load generator writes every `ALIVE_S` seconds, so that its parent knows that it runs."""


class WorkerProtocolError(Exception):
    """A line that is not a command or message of this version."""


def encode_command(command: Command) -> bytes:
    """Return a command as one line of JSON, line end included."""
    return _line(_WORDS[type(command)], to_builtins(command))


def decode_command(line: bytes) -> Command:
    """Return the command that `encode_command` encoded.

    Raises:
        WorkerProtocolError: the line is not a command.
    """
    word, found = _open(line)
    try:
        if word in {"calibrate", "load"}:
            target = found.pop("target")
            target |= {"api": Api(target["api"]), "headers": tuple(map(tuple, target["headers"]))}
            if target["prompts"] is not None:
                target["prompts"] = PromptFile(**target["prompts"])
            found |= {"target": WorkerTarget(**target), "timeouts": Timeouts(**found.pop("timeouts"))}
        if word == "load":
            found["mode"] = LoadMode(found["mode"])
            if found["open_loop"] is not None:
                found["open_loop"] = OpenLoop(**found["open_loop"])
            if found["context"] is not None:
                found["context"] = ContextLoad(**found["context"])
            if (trace := found["trace"]) is not None:
                form = trace["form"]
                found["trace"] = TraceChoice(**trace | {"form": form and TraceFormat(form)})
            if found["conversations"] is not None:
                found["conversations"] = _read_conversations(found["conversations"])
        return _COMMANDS[word](**found)
    except (KeyError, TypeError, ValueError) as error:
        raise WorkerProtocolError(f"no command: {error!r}") from error


def encode_message(message: WorkerMessage) -> bytes:
    """Return a message as one line of JSON, line end included."""
    word = _WORDS[type(message)]
    match message:
        case Batch():
            bins = [[one.at, one.served_by, one.tokens] for one in message.bins]
            events = [encode_event(event) for event in message.events]
            return _line(
                word, {"id": message.id, "at": message.at, "in": message.in_flight, "ev": events, "b": bins}
            )
        case TokenTimes():
            packed = {name: _pack(tokens) for name, tokens in message.requests.items()}
            return _line(word, {"id": message.id, "requests": packed})
        case Calibrated() | Refused() | WorkerEnded():
            found = to_builtins(message)
            if message.failure is not None:
                found["failure"] = encode_failure(message.failure)
            return _line(word, found)
        case _:
            return _line(word, to_builtins(message))


def decode_message(line: bytes) -> WorkerMessage:
    """Return the message that `encode_message` encoded.

    Raises:
        WorkerProtocolError: the line is not a message.
    """
    word, found = _open(line)
    try:
        return _READERS[word](found)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise WorkerProtocolError(f"no message: {error!r}") from error


def _line(word: str, found: Mapping[str, Any]) -> bytes:
    return json.dumps({"is": word, **found}, separators=(",", ":")).encode() + b"\n"


def _open(line: bytes) -> tuple[str, dict[str, Any]]:
    try:
        found = json.loads(line)
        return found.pop("is"), found
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise WorkerProtocolError(f"no line of the load generator: {error!r}") from error


def _pack(tokens: RequestTokens) -> list[Any]:
    """Return a request's token times as a list for JSON: [times, counts or None if all are 1, answer_from].

    The times are doubles as bytes in base64: exact, and ten times as fast as decimal numbers.
    """
    times = base64.b64encode(array("d", tokens.at).tobytes()).decode()
    counts = None if all(count == 1 for count in tokens.counts) else list(tokens.counts)
    return [times, counts, tokens.answer_from]


def _unpack(packed: Sequence[Any]) -> RequestTokens:
    times = array("d", base64.b64decode(packed[0]))
    counts = [1] * len(times) if packed[1] is None else [int(count) for count in packed[1]]
    return RequestTokens(times, counts, int(packed[2]))


def _read_conversations(found: dict[str, Any]) -> ConversationLoad:
    preset = found.pop("preset")
    values: dict[str, Any] = {
        key: Draw(**value) if isinstance(value, dict) else value for key, value in preset.items()
    }
    return ConversationLoad(ConversationPreset(**values), **found)


def _read_batch(found: dict[str, Any]) -> Batch:
    return Batch(
        id=found["id"],
        at=found["at"],
        in_flight=found["in"],
        events=tuple(decode_event(event) for event in found["ev"]),
        bins=tuple(TokenBin(at, served_by, tokens) for at, served_by, tokens in found["b"]),
    )


def _read_calibrated(found: dict[str, Any]) -> Calibrated:
    source, prompt, failure = found["token_source"], found["prompt"], found["failure"]
    found["models"] = tuple(found["models"])
    found["token_source"] = None if source is None else TokenSource(source)
    found["prompt"] = None if prompt is None else PromptLength(**prompt)
    found["failure"] = None if failure is None else decode_failure(failure)
    return Calibrated(**found)


def _read_finished(found: dict[str, Any]) -> RunFinished:
    health = found["health"]
    lag = health["loop_lag_ms"]
    health["loop_lag_ms"] = None if lag is None else LagFigures(**lag)
    found["health"] = ClientHealth(**health)
    return RunFinished(**found)


def _lines_read_ended(found: dict[str, Any]) -> WorkerEnded:
    failure = found["failure"]
    return WorkerEnded(found["returncode"], None if failure is None else decode_failure(failure))


_COMMANDS: dict[str, type[Calibrate | RunLoad | Cancel | Quit]] = {
    "calibrate": Calibrate,
    "load": RunLoad,
    "cancel": Cancel,
    "quit": Quit,
}
_READERS: dict[str, Callable[[dict[str, Any]], WorkerMessage]] = {
    "ready": lambda found: Ready(**found),
    "busy": lambda found: Busy(**found),
    "calibrated": _read_calibrated,
    "batch": _read_batch,
    "tokens": lambda found: TokenTimes(
        found["id"], {name: _unpack(packed) for name, packed in found["requests"].items()}
    ),
    "finished": _read_finished,
    "refused": lambda found: Refused(found["id"], decode_failure(found["failure"])),
    "ended": _lines_read_ended,
}
_WORDS: dict[type, str] = {
    **{kind: word for word, kind in _COMMANDS.items()},
    Ready: "ready",
    Busy: "busy",
    Calibrated: "calibrated",
    Batch: "batch",
    TokenTimes: "tokens",
    RunFinished: "finished",
    Refused: "refused",
    WorkerEnded: "ended",
}
