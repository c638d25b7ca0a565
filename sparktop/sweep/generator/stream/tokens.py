"""Parse one streamed answer: when its tokens arrived, how many, and what the server reported about them."""

from __future__ import annotations

from array import array
from enum import StrEnum

from sparktop.sweep.generator.stream.answer_text import AnswerText
from sparktop.sweep.generator.stream.event import DONE, BadEventError, StreamEvent, Usage, read_event
from sparktop.sweep.generator.stream.form import EventForm, form_of
from sparktop.sweep.generator.stream.sse import EventSplitter, EventTooLargeError
from sparktop.sweep.generator.stream.token_count import CountedTokens, TokenCount

_FIRST_TRIES, _READS_A_TRY = 8, 4
"""Maximum events of an answer whose form is requested: this number, and one more per this number of reads.
Without a limit, an answer whose events all differ would take more time than without forms."""


class Fault(StrEnum):
    """A violation of the stream's format; the value is error text that follows the server's name."""

    ENDLESS_EVENT = "sends an event without an end"
    NO_JSON = "sent an event that is not a JSON object"


class TokenStream:
    """Parses the body of a streamed answer, one read after the other."""

    __slots__ = (
        "_count",
        "_form",
        "_known",
        "_splitter",
        "_tries",
        "done",
        "error",
        "fault",
        "finish_reason",
        "has_begun",
        "model",
        "text",
        "tokens",
        "usage",
    )

    def __init__(self, *, keep_text: bool = False) -> None:
        """Start at the beginning of an answer; with `keep_text`, its text is collected."""
        self.has_begun = False
        """True after the first event, with or without tokens."""
        self.tokens = 0
        """Number of tokens received; an estimate until the answer is complete, see `counted`."""
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
        self.text = AnswerText() if keep_text else None
        """The text of the answer; None where it is not collected."""
        self._count = TokenCount()
        self._splitter = EventSplitter()
        self._known: EventForm | None = None
        """Form of an earlier event, by which most of the later ones are recognised."""
        self._form: EventForm | None = None
        """`_known`, if the next read begins with an event."""
        self._tries = 0
        """Number of events whose form was requested."""

    @property
    def times(self) -> array[float]:
        """Time in seconds of each read so far that certainly brought tokens, in order."""
        return self._count.times

    @property
    def is_reasoning(self) -> bool:
        """True as long as no token other than reasoning has arrived, also before the first token."""
        return self._count.answer_at is None

    def feed(self, at: float, body: bytes) -> int:
        """Parse the data of a read at the time `at`; return the number of its tokens for live display.

        For the first read with tokens, return only the number of visible tokens: the running total in this
        read may include tokens that the server generated earlier and did not send.
        """
        form = self._form
        known = None if form is None else form.read(body)
        if form is None or known is None:
            return self._feed_any(at, body)
        counter = self._count
        count = 0
        for tokens, total in known:
            count += counter.chunk(tokens, total, has_ids=form.has_ids)
        if count:
            self.tokens += count
            counter.read(at, count, is_reasoning=form.is_reasoning)
        return count

    def close(self) -> None:
        """Note that the body is complete: an event `[DONE]` at its end may lack its empty line."""
        self.done = self.done or any(data.startswith(DONE) for data in self._splitter.rest())

    def _feed_any(self, at: float, body: bytes) -> int:
        """Parse the data of a read as `feed` does, whatever its events."""
        try:
            found = self._splitter.feed(body)
        except EventTooLargeError:
            self.fault = Fault.ENDLESS_EVENT
            found = []
        counter = self._count
        is_first, self.has_begun = not self.has_begun, self.has_begun or bool(found)
        count, shown, is_reasoning = 0, 0, True
        event: StreamEvent | None = None
        for data in found:
            event = self._read(data)
            if event is None:
                break
            if self.text is not None:
                self.text.add(data)
            stands_for = counter.chunk(event.tokens, event.total, has_ids=event.has_ids)
            if is_first:
                is_first = False
                counter.begin(at, shows_token=stands_for > 0)
            if stands_for:
                count += stands_for
                shown += event.tokens or 1
                is_reasoning &= event.reasoning
            if not event.is_plain:
                self._note(at, event, shows_token=stands_for > 0)
        live = count if counter.times else shown
        if count:
            self.tokens += count
            counter.read(at, count, is_reasoning=is_reasoning)
        self._form = self._next_form(found, event)
        return live

    def _next_form(self, found: list[bytes], event: StreamEvent | None) -> EventForm | None:
        """Return the form by which `feed` may recognise the next read; None if it must parse that read.

        `found` are the events of the present read. `event` is the meaning of the last one; None if it has
        none.
        """
        if self.done or self.error is not None or self.fault is not None or self.text is not None:
            return None
        reads = len(self._count.times)
        # Not by the first token, which may arrive together with those of many other requests.
        if event is not None and reads > 1 and self._tries < _FIRST_TRIES + reads // _READS_A_TRY:
            self._tries += 1
            self._known = form_of(found[-1], event) or self._known
        return self._known if self._splitter.is_between_events else None

    @property
    def prelude_s(self) -> float | None:
        """Seconds from the first event of the stream to its finish event.

        None if either is missing, or if the first event has more than the role "assistant".
        """
        return self._count.prelude_s

    def counted(self, *, first_event_is_token: bool = False) -> CountedTokens:
        """Return the tokens of the complete answer, with the best counts that its chunks allow.

        `first_event_is_token` is True for a server whose first event, with only the role "assistant", comes
        with its first token.
        """
        total = None if self.usage is None else self.usage.generated_tokens
        return self._count.counted(total, first_event_is_token=first_event_is_token)

    def _read(self, data: bytes) -> StreamEvent | None:
        """Parse an event; return None at or after the end of the stream, after an error, and for bad data."""
        if data.startswith(DONE):
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
