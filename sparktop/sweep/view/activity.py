"""Collects what the agents of a running level do, from the events of their requests."""

from __future__ import annotations

from sparktop.model.activity import LETTERS, Activities, Doing
from sparktop.model.conversation import CallStart, ConversationCall
from sparktop.model.load import FirstToken, LoadEvent, LoadKind, RequestEnded, RequestStarted
from sparktop.model.sweep_view import LevelKey

STEP_S = 0.25
"""Length of a time slot in seconds."""
MOST_SLOTS = 1200
MOST_EACH = 60
"""Agents up to which each has a text of its own."""
_CODES = {one: ord(letter) for one, letter in LETTERS.items()}
_ORDER = {one: index for index, one in enumerate(Doing)}


class ActivityLedger:
    """What each agent of the current level did, slot by slot."""

    def __init__(self) -> None:
        """Start without a level."""
        self._begin: float | None = None
        self._slots = 0
        self._doing: list[Doing] = []
        self._sent: dict[int, float] = {}
        """When the request of a lane without a token was sent, by the lane's number."""
        self._calls: dict[str, ConversationCall] = {}
        self._texts: list[bytearray] = []
        self._counts: list[tuple[int, ...]] = []
        self._waiting: int | None = None

    def begin_level(self, at: float, key: LevelKey) -> None:
        """Begin a level at the time `at` (monotonic s); levels without agents show nothing."""
        self.__init__()  # type: ignore[misc] # nothing of the level before counts
        if key.point.kind is not LoadKind.AGENTS:
            return
        self._begin = at
        self._doing = [Doing.THINK] * key.concurrency
        self._texts = [bytearray() for _ in self._doing] if key.concurrency <= MOST_EACH else []

    def end_level(self) -> None:
        """End the level; until the next one there is nothing to show."""
        self._begin = None

    def take(self, event: LoadEvent) -> None:
        """Update what an agent does from an event of its request."""
        match event:
            case RequestStarted(call=ConversationCall() as call) if call.lane < len(self._doing):
                self._advance(event.at)
                self._calls[event.request_id] = call
                self._sent[call.lane] = event.at
                self._doing[call.lane] = Doing.PREFILL
            case FirstToken() if (place := self._calls.get(event.request_id)) is not None:
                self._advance(event.at)
                self._sent.pop(place.lane, None)
                self._doing[place.lane] = Doing.DECODE
            case RequestEnded() if (place := self._calls.pop(event.request_id, None)) is not None:
                self._advance(event.at)
                self._sent.pop(place.lane, None)
                tool = event.ok and place.then is CallStart.TOOL
                self._doing[place.lane] = Doing.TOOL if tool else Doing.THINK
            case _:
                pass

    def look(self, waiting: float | None) -> None:
        """Record how many requests wait at the servers of the level; None if unknown."""
        self._waiting = None if waiting is None else round(waiting)

    def activities(self, now: float) -> Activities | None:
        """Return what was done up to `now`; None if no level of agents runs."""
        if self._begin is None:
            return None
        self._advance(now)
        each = tuple(text[-MOST_SLOTS:].decode("ascii") for text in self._texts)
        counts = tuple(self._counts[-MOST_SLOTS:])
        return Activities(STEP_S, counts, each, self._waiting is not None)

    def _advance(self, at: float) -> None:
        """Fill the slots that have ended by `at` with what everybody does."""
        if self._begin is None:
            return
        behind = min(MOST_SLOTS, int((at - self._begin) / STEP_S) - self._slots)
        if behind <= 0:
            return
        self._slots = int((at - self._begin) / STEP_S)
        doing = self._now()
        counts = [0] * len(Doing)
        for one in doing:
            counts[_ORDER[one]] += 1
        self._counts += [tuple(counts)] * behind
        for text, one in zip(self._texts, doing, strict=False):
            text.extend(bytes([_CODES[one]]) * behind)
        if len(self._counts) > 2 * MOST_SLOTS:
            del self._counts[:-MOST_SLOTS]
            for text in self._texts:
                del text[:-MOST_SLOTS]

    def _now(self) -> list[Doing]:
        """Return what everybody does now.

        Servers admit requests in the order of their arrival, so of the requests without a token those that
        were sent last wait.
        """
        if not self._waiting or not self._sent:
            return self._doing
        found = self._doing.copy()
        for lane in sorted(self._sent, key=self._sent.__getitem__)[-self._waiting :]:
            found[lane] = Doing.WAITING
        return found
