"""The messages of the load generator about one load run, collected to compute the result of its level."""

from __future__ import annotations

from collections import Counter

from sparktop.model.load import LoadEvent
from sparktop.sweep.generator.wire.messages import (
    Batch,
    RequestTokens,
    RunFinished,
    TokenTimes,
    WorkerMessage,
    with_tokens,
)


class RunRecord:
    """Collects the messages of one load run; can be read at any time, even if the run was interrupted."""

    def __init__(self, run_id: str) -> None:
        """Start with an empty record of the run `run_id`."""
        self.run_id = run_id
        self.finished: RunFinished | None = None
        """The last message of the run; None until it arrives, which it never does if the worker process
        died."""
        self.in_flight = 0
        self.bins: Counter[tuple[float, str | None]] = Counter()
        """Tokens by (start of the tenth of a second, backend)."""
        self._events: list[LoadEvent] = []
        self._tokens: dict[str, RequestTokens] = {}

    def add(self, message: WorkerMessage) -> None:
        """Add a message of this run; ignore messages of other runs."""
        match message:
            case Batch() if message.id == self.run_id:
                self._events.extend(message.events)
                self.in_flight = message.in_flight
                for one in message.bins:
                    self.bins[one.at, one.served_by] += one.tokens
            case TokenTimes() if message.id == self.run_id:
                self._tokens.update(message.requests)
            case RunFinished() if message.id == self.run_id:
                self.finished = message
            case _:
                pass

    def events(self) -> list[LoadEvent]:
        """Return all events so far in order of arrival.

        Events of the type `Tokens` (tokens after the first one of a request) are included only after the end
        of the run, when the load generator sends their exact times.
        """
        return with_tokens(self._events, self._tokens)
