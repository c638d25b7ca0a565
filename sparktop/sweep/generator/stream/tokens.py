"""The tokens of one streamed answer: when they arrived, how many, and what the server reported of them."""

from __future__ import annotations

from array import array
from enum import StrEnum

from sparktop.sweep.generator.stream.event import DONE, BadEventError, StreamEvent, Usage, read_event
from sparktop.sweep.generator.stream.sse import EventSplitter, EventTooLargeError
from sparktop.sweep.generator.stream.token_count import CountedTokens, TokenCount


class Fault(StrEnum):
    """A fault of a stream, worded as the end of a sentence about its server."""

    ENDLESS_EVENT = "sends an event without an end"
    NO_JSON = "sent an event that is not a JSON object"


class TokenStream:
    """Parse the body of an answer, read by read."""

    __slots__ = (
        "_count",
        "_splitter",
        "done",
        "error",
        "fault",
        "finish_reason",
        "has_begun",
        "model",
        "tokens",
        "usage",
    )

    def __init__(self) -> None:
        """Start at the beginning of an answer."""
        self.has_begun = False
        """True after the first event, whatever it contained."""
        self.tokens = 0
        """Tokens received, as far as known before the end of the answer."""
        self.done = False
        """True after the event `[DONE]`."""
        self.error: str | None = None
        """Message of an error event; events after it are ignored."""
        self.fault: Fault | None = None
        """Violation of the format; events after it are ignored."""
        self.finish_reason: str | None = None
        self.usage: Usage | None = None
        self.model: str | None = None
        """Name of the model that the server reports, cleaned."""
        self._count = TokenCount()
        self._splitter = EventSplitter()

    @property
    def times(self) -> array[float]:
        """Time of each read so far that certainly brought tokens."""
        return self._count.times

    @property
    def is_reasoning(self) -> bool:
        """True as long as all tokens were reasoning."""
        return self._count.answer_at is None

    def feed(self, at: float, body: bytes) -> int:
        """Parse the data of a read at the time `at`; return the number of its tokens.

        The number is for live figures. For the first read it is what its chunks show, because a server that
        hides the beginning of an answer counts all of that in the first chunk.
        """
        try:
            found = self._splitter.feed(body)
        except EventTooLargeError:
            self.fault = Fault.ENDLESS_EVENT
            return 0
        if not found:
            return 0
        counter = self._count
        is_first, self.has_begun = not self.has_begun, True
        count, shown, is_reasoning = 0, 0, True
        for data in found:
            event = self._read(data)
            if event is None:
                break
            stands_for = counter.chunk(event.tokens, event.total, has_ids=event.has_ids)
            if is_first:
                is_first = False
                counter.begin(at, shows_token=stands_for > 0)
            if stands_for:
                count += stands_for
                shown += event.tokens or 1
                is_reasoning &= event.reasoning
            if event.is_plain:
                continue
            self._note(at, event, shows_token=stands_for > 0)
        if not count:
            return 0
        self.tokens += count
        live = count if counter.times else shown
        counter.read(at, count, is_reasoning=is_reasoning)
        return live

    @property
    def prelude_s(self) -> float | None:
        """Seconds from a first event with the role alone to the end of the answer; None if there is none."""
        return self._count.prelude_s

    def counted(self, *, first_event_is_token: bool = False) -> CountedTokens:
        """Return the tokens of the complete answer; see `TokenCount.counted`."""
        total = None if self.usage is None else self.usage.generated_tokens
        return self._count.counted(total, first_event_is_token=first_event_is_token)

    def _read(self, data: bytes) -> StreamEvent | None:
        """Return the event; None after the end of the stream, an error or a fault."""
        if data == DONE:
            self.done = True
        if self.done or self.error is not None:
            return None
        try:
            return read_event(data)
        except BadEventError:
            self.fault = Fault.NO_JSON
            return None

    def _note(self, at: float, event: StreamEvent, *, shows_token: bool) -> None:
        if event.finish_reason is not None:
            self._count.finish(at, shows_token=shows_token)
        elif event.is_empty and not shows_token:
            self._count.empty(at)
        self.error = event.error
        self.finish_reason = event.finish_reason or self.finish_reason
        self.usage = event.usage or self.usage
        self.model = event.model or self.model
