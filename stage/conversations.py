"""Simulated agents in virtual time: conversations whose prompts grow, with pauses between calls.

The requests carry hashes of their blocks, so that the simulated engines' prefix caches hit exactly what real
ones would hit: the start that all conversations share, and each conversation's earlier prompts and answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from sparktop.model.failure import FailureKind, RequestFailure
from sparktop.model.load import (
    EndReason,
    LoadEvent,
    RequestEnded,
    RequestStarted,
    RunStarted,
    Turn,
)
from sparktop.simulation.engine import EngineEvent, SimulatedRequest
from sparktop.sweep.plan.conversations import ConversationPreset, Lane
from stage.clients import VirtualTime, Way

_REFUSED_PAUSE_S = 0.5
"""Minimum seconds from a failed request to the next one of its lane."""


_MOST_UNFIT = 100
"""Conversations that end one after the other without a call until a lane has no further turn."""


def planned_turns(
    preset: ConversationPreset, seed: int | str, number: int, max_model_len: int | None = None
) -> Iterator[Turn]:
    """Yield the turns of lane `number` without end, as if each answer had the length of its script.

    The first conversation is under way: its first turn, if it has a past, is the warm-up call. A call that
    does not fit into the server's context ends its conversation and is left out; where none fits any more,
    the turns end.
    """
    lane = Lane(preset, seed, number, max_model_len)
    past = list(lane.past())
    yield from past[-1:]
    unfit = 0
    while unfit < _MOST_UNFIT:
        turn = lane.next_turn()
        if not turn.fits:
            unfit += 1
            lane.give_up()
            continue
        unfit = 0
        yield turn
        lane.record_answer(turn.prompt_tokens, turn.output_tokens)


def turn_hashes(turn: Turn, block_tokens: int, salt: int = 0) -> tuple[int, ...]:
    """Return a hash for each full block of a turn's prompt and answer.

    Blocks within the shared start have the same hash in all conversations with the same `salt`. Blocks after
    it are equal within a conversation until its context is compacted.
    """
    shared = turn.shared_tokens // block_tokens
    blocks = (turn.prompt_tokens + turn.output_tokens) // block_tokens
    place = turn.place
    own = hash((salt, place.lane, place.conversation, turn.compactions))
    return (
        *(hash((salt, block)) for block in range(min(shared, blocks))),
        *(hash((own, block)) for block in range(shared, blocks)),
    )


class _Lane(Struct):
    """One agent."""

    turns: Iterator[Turn]
    next: Turn | None = None


class Conversations:
    """The agents of one load run; after `VirtualTime.run`, `events` has what happened."""

    def __init__(
        self,
        time: VirtualTime,
        way: Way,
        lanes: Sequence[Iterable[Turn]],
        *,
        name: str = "agents",
        block_tokens: int = 16,
        salt: int = 0,
    ) -> None:
        """Prepare to send the turns of each lane to `way`.

        A lane whose first turn is not measured has a past: this turn is its warm-up call. Prompts of runs
        with another `salt` have no blocks in common.
        """
        self.events: list[LoadEvent] = []
        self.done = False
        self._time = time
        self._way = way
        self._name = name
        self._block_tokens = block_tokens
        self._salt = salt
        self._lanes = [_Lane(iter(turns)) for turns in lanes]
        self._sent: dict[str, _Lane] = {}
        self._made = 0
        self._measured: set[str] = set()
        """Ids of measured requests in flight."""
        self._window = (0.0, 0.0)
        self._plan = (0.0, 0.0, 0.0)
        self._warm = False
        time.listeners.append(self._on_event)

    def start(self, duration_s: float, *, ramp_s: float = 0.0, tail_s: float = 60.0) -> None:
        """Send the warm-up calls now; when they have ended, start the lanes over `ramp_s` seconds.

        Requests that start in the `duration_s` seconds after the ramp are measured. The load goes on until
        they have ended, for at most `tail_s` seconds; then all requests in flight are aborted.
        """
        self._plan = (duration_s, ramp_s, tail_s)
        for lane in self._lanes:
            lane.next = next(lane.turns, None)
            if lane.next is not None and not lane.next.place.measured:
                self._send(lane)
        if not self._sent:
            self._begin()

    def _begin(self) -> None:
        now_s = self._time.now_s
        duration_s, ramp_s, tail_s = self._plan
        self._warm = True
        self._window = (now_s + ramp_s, now_s + ramp_s + duration_s)
        self.events.append(RunStarted(now_s, 0, self._window))
        for number, lane in enumerate(self._lanes):
            delay_s = ramp_s * number / len(self._lanes)
            self._time.call_at(now_s + delay_s, partial(self._send, lane))
        self._time.call_at(self._window[1], self._check_end)
        self._time.call_at(self._window[1] + tail_s, self._end)

    def _send(self, lane: _Lane) -> None:
        turn, now_s = lane.next, self._time.now_s
        if turn is None or self.done:
            return
        begin_s, end_s = self._window
        measured = self._warm and begin_s <= now_s < end_s
        place = replace(turn.place, measured=measured)
        self._made += 1
        request_id = f"{self._name}-{self._made}"
        hashes = turn_hashes(turn, self._block_tokens, self._salt)
        request = SimulatedRequest(request_id, turn.prompt_tokens, turn.output_tokens, block_hashes=hashes)
        self._sent[request_id] = lane
        if measured:
            self._measured.add(request_id)
        self.events.append(RequestStarted(request_id, now_s, 0, turn.prompt_tokens, call=place))
        try:
            self._way.send(request)
        except ValueError as error:  # more than the context or the KV cache of the engine
            failure = RequestFailure(FailureKind.HTTP, str(error), now_s)
            end = RequestEnded(request_id, now_s, EndReason.ERROR, failure)
            self._time.call_at(now_s, partial(self._time.emit, -1, end))

    def _on_event(self, engine: int, event: EngineEvent) -> None:
        del engine
        if event.request_id not in self._sent:
            return
        self.events.append(event)
        if not isinstance(event, RequestEnded):
            return
        lane = self._sent.pop(event.request_id)
        self._measured.discard(event.request_id)
        lane.next = next(lane.turns, None)
        if not self._warm:
            if not self._sent:
                self._begin()
            return
        if self._time.now_s >= self._window[1]:
            self._check_end()
        if lane.next is not None and not self.done:
            pause_s = lane.next.pause_s if event.ok else max(_REFUSED_PAUSE_S, lane.next.pause_s)
            self._time.call_at(self._time.now_s + pause_s, partial(self._send, lane))

    def _check_end(self) -> None:
        if not self._measured:
            self._end()

    def _end(self) -> None:
        if self.done:
            return
        self.done = True
        for request_id in tuple(self._sent):
            self._way.abort(request_id)
        self._time.call_at(self._time.now_s, self._close)  # after the events of the aborted requests

    def _close(self) -> None:
        self._time.listeners.remove(self._on_event)
