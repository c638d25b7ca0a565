"""A trace as a schedule: the requests of a part of a file, with their times from the begin of that part."""

from __future__ import annotations

import math
from collections.abc import Iterator

from msgspec import Struct

from sparktop.sweep.plan.traces.formats import Memory, TraceFormat, read_line, recognise
from sparktop.sweep.plan.traces.lines import TraceError, numbered_lines
from sparktop.sweep.plan.traces.request import FaultError, Recorded, TracedRequest

MOST_REQUESTS = 1_000_000
"""Maximum number of requests of a replay."""
LONGEST_PAUSE_S = 300.0
"""Longer pauses of a conversation without a clock are shortened to this."""
CONVERSATION_GAP_S = 30.0
"""Seconds between the begins of two conversations, in files that state no time for them."""
_REMEMBERED = 200_000
"""Number of sessions after which older ones may be forgotten; so long files take a bounded memory."""


class TraceChoice(Struct, frozen=True):
    """Which part of which file is replayed, and how fast."""

    path: str
    form: TraceFormat | None = None
    """None to recognise it from the first line."""
    speed: float = 1.0
    """2 replays twice as fast: all times are halved."""
    from_s: float = 0.0
    """Seconds after the file's first request from which on requests are replayed."""
    to_s: float = math.inf
    """Seconds after the file's first request at which the part ends."""


class Trace:
    """Iterates over the requests of a chosen part of a trace; use it once."""

    def __init__(self, choice: TraceChoice) -> None:
        """Prepare to read the file; nothing is read before the first iteration."""
        self.choice = choice
        self.form = choice.form
        """The format of the file; None until it is recognised."""
        self.skipped = 0
        """Requests left out because they had no prompt or no answer when they were recorded."""
        self.shortened = 0
        """Pauses that were shortened to `LONGEST_PAUSE_S`."""
        self.conversations = 0
        """Requests that do not wait for another one."""
        self._origin_s: float | None = None
        self._newest_s = 0.0
        self._begun = False
        self._number = 0
        self._sessions = _Sessions()

    def __iter__(self) -> Iterator[TracedRequest]:
        """Yield the requests in the order of the file.

        Raises:
            TraceError: the file cannot be used from some line on, or holds no request in the chosen part.
        """
        memory: Memory = {}
        line = 0
        path = self.choice.path
        for line, text in numbered_lines(path):
            try:
                self.form = self.form or recognise(text)
                recorded = read_line(self.form, text, memory)
                request = None if recorded is None else self._placed(recorded)
                if request is not None:
                    yield request
            except FaultError as error:
                raise TraceError(path, str(error), line) from None
            if self._newest_s >= self.choice.to_s:
                break
        if self._number == 0:
            raise TraceError(path, self._nothing(is_empty=line == 0))

    def _placed(self, one: Recorded) -> TracedRequest | None:
        """Return the request with its time in the replay; None if it is not part of it."""
        is_known, after = self._sessions.of(one.session)
        at_s = self._time(one, follows=is_known)
        choice = self.choice
        in_part = after is not None if at_s is None else choice.from_s <= at_s < choice.to_s
        if in_part and (one.output_tokens == 0 or one.prompt_tokens == 0):
            self.skipped += 1
            return None
        number = self._number if in_part else None
        self._sessions.add(one.session, number)
        if number is None:
            return None
        if number == MOST_REQUESTS:
            raise TraceError(
                choice.path, f"more than {MOST_REQUESTS:,} requests: choose a part with --trace-range"
            )
        self._number += 1
        self.conversations += after is None
        return TracedRequest(
            number=number,
            due_s=None if at_s is None else (at_s - choice.from_s) / choice.speed,
            prompt_tokens=one.prompt_tokens,
            output_tokens=one.output_tokens,
            blocks=one.blocks,
            block_tokens=one.block_tokens,
            scope=one.scope,
            after=after,
            delay_s=self._pause_s(one, after) / choice.speed,
            text=one.text,
        )

    def _time(self, one: Recorded, *, follows: bool) -> float | None:
        """Return the time of a request in seconds after the first one; None if its predecessor decides."""
        if one.at_s is None:
            if follows:
                return None
            at_s = self._newest_s + (CONVERSATION_GAP_S if self._begun else 0.0)
        else:
            if self._origin_s is None:
                self._origin_s = one.at_s
            at_s = one.at_s - self._origin_s
        if at_s < self._newest_s:
            raise FaultError(f"the clock steps back by {self._newest_s - at_s:.3g} s: sort the file by time")
        self._newest_s, self._begun = at_s, True
        return at_s

    def _pause_s(self, one: Recorded, after: int | None) -> float:
        if after is None or one.at_s is not None:
            return 0.0
        self.shortened += one.pause_s > LONGEST_PAUSE_S
        return min(one.pause_s, LONGEST_PAUSE_S)

    def _nothing(self, *, is_empty: bool) -> str:
        if is_empty:
            return "is empty"
        if self.skipped:
            return f"no request with a prompt and an answer; {self.skipped:,} failed when they were recorded"
        if not self._begun:
            return "no request, only a header"
        last = f"the last request is at {self._newest_s:,.0f} s"
        return f"no request in the chosen part: {last}"


class _Sessions:
    """Numbers of the latest requests by session, of the newest `_REMEMBERED` sessions at least."""

    def __init__(self) -> None:
        self._new: dict[str, int | None] = {}
        self._old: dict[str, int | None] = {}

    def of(self, session: str | None) -> tuple[bool, int | None]:
        """Return (whether the session is known, number of its request; None if that is not replayed)."""
        if session is None:
            return False, None
        for numbers in (self._new, self._old):
            if session in numbers:
                return True, numbers[session]
        return False, None

    def add(self, session: str | None, number: int | None) -> None:
        if session is None:
            return
        self._new[session] = number
        if len(self._new) > _REMEMBERED:
            self._old, self._new = self._new, {}
