"""All that a run told, put together: what `measure_level` needs."""

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
    """Collects the messages of one run; may be asked at any time, also when the run broke off."""

    def __init__(self, run_id: str) -> None:
        """Begin with nothing of the run `run_id`."""
        self.run_id = run_id
        self.finished: RunFinished | None = None
        """None while it goes on, and for ever when the process broke off."""
        self.in_flight = 0
        self.bins: Counter[tuple[float, str | None]] = Counter()
        """Tokens by beginning of the tenth of a second and by backend."""
        self._events: list[LoadEvent] = []
        self._tokens: dict[str, RequestTokens] = {}

    def add(self, message: WorkerMessage) -> None:
        """Take in a message; those of other runs are passed over."""
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
        """Give all events so far in order; with every token's time once the run has finished."""
        return with_tokens(self._events, self._tokens)
