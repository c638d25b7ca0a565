"""How a server of known truth delivers its tokens: what each chunk shows, and what no chunk ever shows.

A token is made at its scheduled time; a chunk with it may be sent then, later together with others, or
never. The truth has the time at which each token was made, a client has the chunks alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_ROLE = b'{"role":"assistant","content":""}'
_CALLED = b'{"index":0,"id":"call-1","type":"function","function":{"name":"find","arguments":""}}'
_ARGUMENTS = b'{"index":0,"function":{"arguments":" \\"word\\","}}'


@dataclass(frozen=True, slots=True)
class Delivery:
    """How the tokens of each answer reach the client."""

    sizes: tuple[int, ...] = (1,)
    """Tokens per chunk after the first token's own chunk, repeated."""
    together: bool = False
    """Whether the tokens of a chunk are made in one step, as by speculative decoding, not one by one."""
    hidden_head: int = 0
    """Tokens made before the first that is shown, for example hidden reasoning."""
    hidden_tail: int = 0
    """Tokens made after the last that is shown."""
    empty_head: int = 0
    """First tokens whose chunks have an empty text."""
    calls_from: int | None = None
    """Number of the first token that is a part of a tool call's arguments."""
    fail_every: int | None = None
    """One request in this many loses its connection in mid-stream; None for no request."""
    role_at_once: bool = False
    """Whether the first event, with the role alone, is sent as the request arrives, not with a token."""
    ids: bool = False
    """Whether chunks have token ids."""
    totals: bool = False
    """Whether chunks have the running total, if the request asks for it."""


def delivery_fields(delivery: Delivery) -> dict[str, object]:
    """Convert a delivery to JSON fields."""
    return asdict(delivery)


def delivery_from(found: object) -> Delivery:
    """Return the delivery with these JSON fields; without fields, each token has a chunk with its id."""
    if not isinstance(found, Mapping):
        return Delivery(ids=True)
    values: dict[str, Any] = {one.name: found[one.name] for one in fields(Delivery)}
    return Delivery(**values | {"sizes": tuple(values["sizes"])})


def chunk(data: bytes) -> bytes:
    """Return `data` as a chunk of an HTTP body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


class Answer:
    """The stream of one answer: the bytes that leave with each token."""

    def __init__(
        self, delivery: Delivery, asked_tokens: int, prompt_tokens: int, *, usage: bool, totals: bool
    ) -> None:
        """Start; `usage` and `totals`: whether the request asks for the total, and for running totals."""
        self._delivery = delivery
        self._asked = asked_tokens
        self._prompt = prompt_tokens
        self._has_usage = usage
        self._has_totals = totals and delivery.totals
        self._held: list[int] = []
        """Numbers of tokens that wait for their chunk."""
        self._chunks = 0
        self._in_call = False

    def first_event(self) -> bytes:
        """Return the head of the answer and its first event, which has the role alone."""
        return HEAD + chunk(self._event(_ROLE, 0))

    def token(self, number: int) -> tuple[bytes, list[int]]:
        """Return (the chunk to write as token `number` is made, or b"", the tokens that it shows)."""
        delivery, last = self._delivery, number == self._asked - 1
        hidden = number < delivery.hidden_head or number >= self._asked - delivery.hidden_tail
        if not hidden:
            self._held.append(number)
        data, shown = b"", list[int]()
        if self._held and (last or hidden or len(self._held) >= self._size()):
            shown, self._held = self._held, []
            self._chunks += 1
            data = chunk(self._shown(shown, number + 1, last=last))
        elif last:
            data = chunk(self._event(b"{}", number + 1, b'"length"'))
        return data, shown

    def _size(self) -> int:
        """Return the tokens of the next chunk: one in the first, as after a prefill."""
        sizes = self._delivery.sizes
        return 1 if not self._chunks else sizes[(self._chunks - 1) % len(sizes)]

    def _shown(self, numbers: list[int], made: int, *, last: bool) -> bytes:
        delivery = self._delivery
        ids = b',"token_ids":[%s]' % b",".join(b"%d" % (1000 + one) for one in numbers)
        ids = ids if delivery.ids else b""
        finish = b'"length"' if last else b"null"
        first = numbers[0]
        if delivery.calls_from is not None and first >= delivery.calls_from:
            call, self._in_call = (_ARGUMENTS if self._in_call else _CALLED), True
            return self._event(b'{"tool_calls":[%s]}' % call, made, finish, ids)
        text = b"" if first < delivery.empty_head else b" word" * len(numbers)
        return self._event(b'{"content":"%s"}' % text, made, finish, ids)

    def _event(self, delta: bytes, made: int, finish: bytes = b"null", ids: bytes = b"") -> bytes:
        usage = b',"usage":' + self._usage(made) if self._has_totals else b""
        return (
            b'data: {"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1760000000,'
            b'"model":"truth","choices":[{"index":0,"delta":%s,"logprobs":null,"finish_reason":%s%s}]%s}\n\n'
            % (delta, finish, ids, usage)
        )

    def ending(self) -> bytes:
        """Return the bytes that end the stream after its last token."""
        events = b""
        if self._has_usage:
            usage = self._usage(self._asked)
            events = chunk(b'data: {"id":"chatcmpl-0","model":"truth","choices":[],"usage":%s}\n\n' % usage)
        return events + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"

    def _usage(self, generated: int) -> bytes:
        total = self._prompt + generated
        form = b'{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d}'
        return form % (self._prompt, total, generated)
