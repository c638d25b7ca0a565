"""The tokens of one streamed answer: when they came, how many, and what the server said of them."""

from __future__ import annotations

from array import array
from enum import StrEnum

from sparktop.model.load import TokenSource
from sparktop.sweep.sse import EventSplitter, EventTooLargeError
from sparktop.sweep.stream_event import DONE, BadEventError, StreamEvent, Usage, read_event


class Fault(StrEnum):
    """What is wrong with a stream, as the end of a sentence about its server."""

    ENDLESS_EVENT = "sends an event without an end"
    NO_JSON = "sent an event that is no JSON object"


class TokenStream:
    """Takes the body of an answer, read by read."""

    __slots__ = (
        "_all_ids",
        "_splitter",
        "answer_from",
        "counts",
        "done",
        "error",
        "fault",
        "finish_reason",
        "has_begun",
        "model",
        "times",
        "tokens",
        "usage",
    )

    def __init__(self) -> None:
        """Begin with nothing."""
        self.has_begun = False
        """True once an event came, whatever it held."""
        self.times: array[float] = array("d")
        """Of each read that brought tokens."""
        self.counts: list[int] = []
        """Tokens of each of those reads."""
        self.tokens = 0
        """All that came; where no ids are told, each chunk is one."""
        self.answer_from: int | None = None
        """Index of the first read with something else than reasoning."""
        self.done = False
        """True after the event that ends a stream."""
        self.error: str | None = None
        """The words of an error event; nothing after it counts."""
        self.fault: Fault | None = None
        """What no event stream may hold; nothing after it counts."""
        self.finish_reason: str | None = None
        self.usage: Usage | None = None
        self.model: str | None = None
        """What the server says that it answers with, clean."""
        self._all_ids = True
        self._splitter = EventSplitter()

    def feed(self, at: float, body: bytes) -> int:
        """Take in what a read at `at` held; give the number of tokens."""
        try:
            found = self._splitter.feed(body)
        except EventTooLargeError:
            self.fault = Fault.ENDLESS_EVENT
            return 0
        if not found:
            return 0
        self.has_begun = True
        count, is_reasoning = 0, True
        for data in found:
            if data == DONE:
                self.done = True
                break
            try:
                event = read_event(data)
            except BadEventError:
                self.fault = Fault.NO_JSON
                break
            if event.tokens:
                count += event.tokens
                is_reasoning &= event.reasoning
                self._all_ids &= event.has_ids
            if event.is_plain:
                continue
            self._note(event)
            if self.error is not None:
                break
        if count:
            self._add(at, count, is_reasoning=is_reasoning)
        return count

    def token_source(self) -> TokenSource | None:
        """Tell what the counts can be taken for: the best that agrees with the server's own total."""
        told = None if self.usage is None else self.usage.generated_tokens
        if not self.times:
            return None
        if self._all_ids and told in {None, self.tokens}:
            return TokenSource.TOKEN_IDS
        return TokenSource.CHUNKS if told is None else TokenSource.USAGE

    def generated_tokens(self) -> int | None:
        """Give the server's total, else what its ids add up to, else None."""
        if self.usage is not None and self.usage.generated_tokens is not None:
            return self.usage.generated_tokens
        return self.tokens if self._all_ids and self.times else None

    def _note(self, event: StreamEvent) -> None:
        self.error = event.error
        self.finish_reason = event.finish_reason or self.finish_reason
        self.usage = event.usage or self.usage
        self.model = event.model or self.model

    def _add(self, at: float, count: int, *, is_reasoning: bool) -> None:
        if self.answer_from is None and not is_reasoning:
            self.answer_from = len(self.times)
        self.tokens += count
        self.times.append(at)
        self.counts.append(count)
