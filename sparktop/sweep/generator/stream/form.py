"""Recognise events that differ from an earlier event of their stream in text, token ids and counts alone.

Nearly all events of an answer do. To compare such an event with the earlier one takes a third of the time of
searching it for each field, and a tenth of the time of parsing its JSON. Nothing is overlooked: an event with
any other difference, such as a finish reason, an error or a new field, is not recognised.
"""

from __future__ import annotations

import re

from sparktop.sweep.generator.stream.event import FAST_BYTES, StreamEvent

_MOST_PATTERNS = 64
"""Maximum number of patterns that a process compiles, because each takes half a millisecond."""
_PLAIN = rb'[^"\\\x00-\x1f]*+'
"""Characters of a JSON string that are neither escaped nor its end."""
_TEXT = rb'(?=[^"])' + _PLAIN + rb'(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})' + _PLAIN + rb')*+"'
"""What follows the opening quote of a text that is not empty."""
_UNQUOTED = _TEXT.replace(rb'["\\/', rb"[\\/")
"""The same without quotes in it, for events with counts: with quotes, `read_event` may parse all fields."""
_KEY_AND_TEXT = re.compile(rb'"(?:content|text|reasoning_content|reasoning|arguments)":\s?"(' + _TEXT + rb")")
_NUMBER = rb"(?:0|[1-9][0-9]{0,8}+)(?![0-9.eE])"
_MORE_NUMBERS = rb"(?:, ?" + _NUMBER + rb")++"
_NAME = _PLAIN + b'"'
_IDS, _TOTAL, _OTHER, _ID = "ids", "total", "other", "id"
_VARYING = re.compile(
    rb'(?P<ids>"token_ids":\s?\[)' + _NUMBER + rb"(?:" + _MORE_NUMBERS + rb")?"
    + rb'|(?P<total>"completion_tokens":\s?)' + _NUMBER
    # Nothing reads these where they come with a token.
    + rb'|(?P<other>"(?:created|[a-z]+_tokens)":\s?)' + _NUMBER + rb'|(?P<id>"id":\s?")' + _NAME
)  # fmt: skip
"""Values after the text that may differ, each in the group of its kind."""
_VALUES = {_IDS: _NUMBER + b"(?P<ids>" + _MORE_NUMBERS + b")?", _TOTAL: b"(?P<total>" + _NUMBER + b")"}
_VALUES |= {_OTHER: _NUMBER, _ID: _NAME}
"""Patterns of these values by kind. The group of token ids has those after the first one."""
_KEYS = {_IDS: b'"token_ids"', _TOTAL: b'"completion_tokens"'}
_patterns: dict[tuple[bytes, ...], re.Pattern[bytes] | None] = {}
"""Patterns of the rest of an event, from the text on, by their parts; the streams of a server share them."""


class EventForm:
    """The constant parts of the events of one stream, and what these events mean."""

    __slots__ = ("_head", "_head_bytes", "_ids", "_match_rest", "_total", "has_ids", "is_reasoning")

    def __init__(self, head: bytes, rest: re.Pattern[bytes], event: StreamEvent) -> None:
        """Recognise what begins with `head` and continues with `rest`; it means what `event` does.

        `rest` has a group `ids` or `total` if the event has token ids or a running total.
        """
        self.has_ids = event.has_ids
        """True if the events have token ids."""
        self.is_reasoning = event.reasoning
        """True if the events have reasoning, but no text and no tool call."""
        self._ids = rest.groupindex.get(_IDS)
        self._total = rest.groupindex.get(_TOTAL)
        self._head = head
        self._head_bytes = len(head)
        self._match_rest = rest.match

    def read(self, body: bytes) -> list[tuple[int, int | None]] | None:
        """Return (tokens, running total) of each event in `body`, which is a part of a stream.

        Return None unless all of `body` is complete events of this form.
        """
        found: list[tuple[int, int | None]] = []
        at, head, ids, total = 0, self._head, self._ids, self._total
        while at < len(body):
            text = at + self._head_bytes
            rest = self._match_rest(body, text) if body[at:text] == head else None
            if rest is None:
                return None
            begin, at = at, rest.end()
            if at - begin >= FAST_BYTES:
                return None
            more = None if ids is None else rest[ids]
            tokens = 1 if more is None else 1 + more.count(b",")
            found.append((tokens, None if total is None else int(rest[total])))
        return found if body.isascii() or _is_utf8(body) else None


def form_of(data: bytes, event: StreamEvent) -> EventForm | None:
    """Return the form of an event with the data `data` and the meaning `event`.

    Return None if the event has more than tokens, or if its bytes do not show for certain where they are.
    """
    says_more = event.finish_reason is not None or event.error is not None or event.usage is not None
    found = _KEY_AND_TEXT.search(data) if event.tokens and not says_more else None
    if found is None:
        return None
    head, rest = data[: found.start(1)], data[found.end() :]
    if b"\\" in head or _KEYS[_IDS] in head or _KEYS[_TOTAL] in head:
        return None
    pattern = _pattern(_parts(rest))
    if pattern is None:
        return None
    kinds = pattern.groupindex
    if (_IDS in kinds) != event.has_ids or (_TOTAL in kinds) != (event.total is not None):
        return None
    form = EventForm(b"data: " + head, pattern, event)
    return form if form.read(b"data: %s\n\n" % data) == [(event.tokens, event.total)] else None


def _parts(rest: bytes) -> tuple[bytes, ...]:
    """Return the constant parts of the rest of an event, with the kind of value between each two of them."""
    parts: list[bytes] = []
    at = 0
    for one in _VARYING.finditer(rest):
        kind = one.lastgroup or _OTHER
        parts += rest[at : one.end(kind)], kind.encode()
        at = one.end()
    return *parts, rest[at:]


def _pattern(parts: tuple[bytes, ...]) -> re.Pattern[bytes] | None:
    """Return the compiled pattern of an event from its text on; None if the `parts` allow no certain one."""
    if parts not in _patterns and len(_patterns) < _MOST_PATTERNS:
        constant, kinds = b"\0".join(parts[::2]), [kind.decode() for kind in parts[1::2]]
        is_certain = b"\\" not in constant and all(
            kinds.count(kind) == (constant.count(key) if kind in kinds else 0) <= 1
            for kind, key in _KEYS.items()
        )
        source = _UNQUOTED if b'_tokens"' in constant else _TEXT
        for piece, kind in zip(parts[::2], kinds, strict=False):
            source += re.escape(piece) + _VALUES[kind]
        _patterns[parts] = re.compile(source + re.escape(parts[-1] + b"\n\n")) if is_certain else None
    return _patterns.get(parts)


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode("utf-8", "surrogatepass")  # as `json.loads` does
    except UnicodeDecodeError:
        return False
    return True
