"""The log of a load run in progress: events, tokens per tenth of a second, exact arrival times of tokens."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterator

from sparktop.model.conversation import ConversationCall
from sparktop.model.load import (
    EndReason,
    FirstToken,
    LoadEvent,
    RequestEnded,
    RequestStarted,
    ResponseStarted,
)
from sparktop.sweep.generator.wire.messages import BIN_S, Batch, RequestTokens, TokenBin, TokenTimes

_BINS_PER_S = round(1 / BIN_S)
_READS_A_LINE = 20_000
"""Number of token times after which a message is sent: about 220 kB."""


class RunLog:
    """The log of one load run, from which messages to the parent process are made."""

    def __init__(self, run_id: str, run: int = 0) -> None:
        """Start an empty log of the run `run_id`; `run` is its number within the level."""
        self.run_id = run_id
        self.run = run
        self.started = 0
        """Number of requests whose body was written."""
        self.ended = 0
        self.failed = 0
        self.tokens = 0
        self.in_flight = 0
        self.most_in_flight = 0
        self._events: list[LoadEvent] = []
        self._bins: defaultdict[tuple[int, str | None], int] = defaultdict(int)
        self._times: dict[str, RequestTokens] = {}

    def add(self, event: LoadEvent) -> None:
        """Add an event of the run as a whole, such as its start or end."""
        self._events.append(event)

    def request_started(
        self,
        request_id: str,
        at: float,
        prompt_tokens: int | None,
        due: float | None = None,
        call: ConversationCall | None = None,
        *,
        resent: bool = False,
    ) -> None:
        """Record that a request was written to its connection at the time `at`; see `RequestStarted`."""
        if not resent:
            self.started += 1
            self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        self._events.append(RequestStarted(request_id, at, self.run, prompt_tokens, due, call, resent))

    def request_unsent(
        self,
        request_id: str,
        at: float,
        prompt_tokens: int | None,
        end: RequestEnded,
        due: float | None = None,
        call: ConversationCall | None = None,
    ) -> None:
        """Record a request for which no connection could be opened: it starts and fails at the time `at`."""
        self._events.append(RequestStarted(request_id, at, self.run, prompt_tokens, due, call))
        self._events.append(end)
        self.ended += 1
        self.failed += end.reason is EndReason.ERROR

    def response_started(self, request_id: str, at: float) -> None:
        """Record that the first event of an answer's stream arrived at the time `at`."""
        self._events.append(ResponseStarted(request_id, at))

    def first_token(
        self, request_id: str, at: float, count: int, served_by: str | None, *, reasoning: bool
    ) -> None:
        """Record that a network read at the time `at` brought the first `count` tokens of an answer."""
        self._events.append(FirstToken(request_id, at, count, reasoning))
        self.later_tokens(at, count, served_by)

    def later_tokens(self, at: float, count: int, served_by: str | None) -> None:
        """Record that a network read at the time `at` brought `count` more tokens of an answer."""
        self.tokens += count
        key = (int(at * _BINS_PER_S), served_by)
        self._bins[key] += count

    def request_ended(
        self, end: RequestEnded, times: array[float], counts: list[int], answer_from: int
    ) -> None:
        """Record the end of a request, and keep its exact token times, which `token_times` returns.

        `times` and `counts` have the time and the token count of each network read of the answer. Reads
        before the index `answer_from` brought only reasoning tokens.
        """
        self.ended += 1
        self.failed += end.reason is EndReason.ERROR
        self.in_flight -= 1
        self._events.append(end)
        if times:
            self._times[end.request_id] = RequestTokens(times, counts, answer_from)

    def flush(self, at: float) -> Batch | None:
        """Return a message with the events and tokens since the last call; None if there are none.

        The tokens are summed per tenth of a second and backend.
        """
        if not self._events and not self._bins:
            return None
        events, self._events = self._events, []
        bins, self._bins = self._bins, defaultdict(int)
        return Batch(
            self.run_id,
            at,
            self.in_flight,
            tuple(events),
            tuple(
                TokenBin(number / _BINS_PER_S, served_by, count)
                for (number, served_by), count in bins.items()
            ),
        )

    def token_times(self) -> Iterator[TokenTimes]:
        """Yield the exact token times of all ended requests, split into messages of limited length."""
        part: dict[str, RequestTokens] = {}
        reads = 0
        for request_id, tokens in self._times.items():
            part[request_id] = tokens
            reads += len(tokens.at)
            if reads >= _READS_A_LINE:
                yield TokenTimes(self.run_id, part)
                part, reads = {}, 0
        if part:
            yield TokenTimes(self.run_id, part)
