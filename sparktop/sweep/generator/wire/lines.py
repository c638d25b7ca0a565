"""Encode and decode the commands to the load generator and its messages: one JSON object per line.

Both processes run the same version of this package, so a line that cannot be decoded is a programming error.
"""

from __future__ import annotations

import base64
import json
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import to_builtins

from sparktop.model.load import LoadMode, TokenSource
from sparktop.sweep.generator.wire.event_lines import (
    decode_event,
    decode_failure,
    encode_event,
    encode_failure,
)
from sparktop.sweep.generator.wire.messages import (
    Batch,
    Busy,
    Calibrate,
    Calibrated,
    Cancel,
    ClientHealth,
    Command,
    ContextLoad,
    ConversationLoad,
    LagFigures,
    OpenLoop,
    PromptLength,
    Quit,
    Ready,
    Refused,
    RequestTokens,
    RunFinished,
    RunLoad,
    TokenBin,
    TokenTimes,
    WorkerEnded,
    WorkerMessage,
    WorkerTarget,
)
from sparktop.sweep.plan.conversations.draw import Draw
from sparktop.sweep.plan.conversations.preset import ConversationPreset
from sparktop.sweep.plan.plan import Api, Timeouts
from sparktop.sweep.plan.prompt_file import PromptFile
from sparktop.sweep.plan.traces.formats import TraceFormat
from sparktop.sweep.plan.traces.trace import TraceChoice

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


def _read_ended(found: dict[str, Any]) -> WorkerEnded:
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
    "ended": _read_ended,
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
