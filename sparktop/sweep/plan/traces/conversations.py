"""Traces of agents' conversations: Weka (cc-traces) and TraceLab.

Their conversations have no common clock. A request follows the one before it after the recorded pause.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sparktop.sweep.plan.traces import fields
from sparktop.sweep.plan.traces.request import FaultError, Recorded

_WEKA_BLOCK = 64
_DEEPEST = 8
"""Maximum depth of sub-agents within sub-agents."""
_COMPACTED = 0.5
"""A prompt that is shorter than this share of the prompt before it begins a new text: its conversation was
summarised. A smaller drop is a changed ending."""


class WekaReader:
    """Reads one JSON object per conversation, with its requests and those of its sub-agents."""

    def read(self, text: str) -> list[Recorded]:
        """Return the requests of a conversation; those of a sub-agent stand where its parent waits for them.

        Raises:
            FaultError: the line is not a conversation.
        """
        row = fields.json_object(text)
        name = fields.word(row, "id")
        block = fields.tokens(row, "block_size") if row.get("block_size") is not None else _WEKA_BLOCK
        if block == 0:
            raise FaultError("'block_size' must not be 0")
        scope = "" if row.get("hash_id_scope") == "global" else name
        found: list[Recorded] = []
        free_s: float | None = None
        for one in _entries(row, 0):
            at_s = fields.seconds(one, "t")
            pause_s = max(0.0, at_s - free_s) if free_s is not None else 0.0
            free_s = max(free_s or 0.0, at_s + fields.pause(one, "api_time"))
            length, output = fields.tokens(one, "in"), fields.tokens(one, "out")
            blocks = fields.block_ids(one)
            found.append(
                Recorded(None, length, output, blocks, block, scope, key=name, parent=name, pause_s=pause_s)
            )
        if not found:
            raise FaultError("a conversation without requests")
        return found


def _entries(row: Mapping[str, object], depth: int) -> Iterator[Mapping[str, object]]:
    """Yield the requests of a conversation, and of each sub-agent at the place of its entry."""
    requests = row.get("requests")
    if not isinstance(requests, list):
        raise FaultError("no list 'requests'")
    if depth > _DEEPEST:
        raise FaultError(f"sub-agents more than {_DEEPEST} deep")
    for number, one in enumerate(requests):
        if not isinstance(one, dict):
            raise FaultError(f"request {number + 1} of the conversation is not an object")
        if one.get("type") == "subagent" and "requests" in one:
            yield from _entries(one, depth + 1)
        elif one.get("type") != "subagent":
            yield one


class TraceLabReader:
    """Reads one JSON object per model call, with the session that it belongs to."""

    def __init__(self) -> None:
        """Start without known sessions."""
        self._session: str | None = None
        self._length = 0
        self._text = 0
        """Number of the text of the present session; it grows when the conversation was compacted."""
        self._ended_s: float | None = None
        """Time of the latest recorded event of the session."""

    def read(self, text: str) -> list[Recorded]:
        """Return the call of a line; the pause before it is that between the events of two calls.

        Raises:
            FaultError: the line is not a model call.
        """
        row = fields.json_object(text)
        session = fields.word(row, "session_id")
        length, output = _prompt(row), fields.tokens(row, "output_tokens")
        events = _event_times(row)
        if session != self._session:
            self._session, self._text, self._ended_s = session, 0, None
        elif length < _COMPACTED * self._length:
            self._text += 1
        pause_s = 0.0
        if events and self._ended_s is not None:
            pause_s = max(0.0, events[0] - self._ended_s)
        if events:
            self._ended_s = events[-1]
        self._length = length
        scope = f"{session}/{self._text}"
        return [Recorded(None, length, output, scope=scope, key=session, parent=session, pause_s=pause_s)]


def _prompt(row: Mapping[str, object]) -> int:
    if row.get("input_tokens_total") is not None:
        return fields.tokens(row, "input_tokens_total")
    return fields.tokens(row, "prefix_tokens") + fields.tokens(row, "newly_append_tokens")


def _event_times(row: Mapping[str, object]) -> list[float]:
    """Return the times of the recorded events of a call in seconds, ascending."""
    events = row.get("timing_events")
    if events is None:
        return []
    if not isinstance(events, list):
        raise FaultError("'timing_events' must be a list")
    times = []
    for one in events:
        at = one.get("timestamp") if isinstance(one, dict) else None
        if not isinstance(at, str):
            raise FaultError("an entry of 'timing_events' has no 'timestamp'")
        times.append(fields.iso_seconds(at))
    return sorted(times)
