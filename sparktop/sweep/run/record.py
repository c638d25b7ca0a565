"""Everything that the worker reported of a run, collected: the input of `level_result`."""

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
    """Collect the messages of one run. Can be read at any time, even if the run was interrupted."""

    def __init__(self, run_id: str) -> None:
        """Start with an empty record of the run `run_id`."""
        self.run_id = run_id
        self.finished: RunFinished | None = None
        """None while the run is in progress, and for good if the worker process died."""
        self.in_flight = 0
        self.bins: Counter[tuple[float, str | None]] = Counter()
        """Tokens by (start of the tenth of a second, backend)."""
        self._events: list[LoadEvent] = []
        self._tokens: dict[str, RequestTokens] = {}

    def add(self, message: WorkerMessage) -> None:
        """Add a message of this run; ignore those of other runs."""
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
        """Return all events so far in order; with the time of every token once the run has finished."""
        return with_tokens(self._events, self._tokens)
