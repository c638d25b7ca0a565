"""Find out how many tokens each read of a streamed answer brought, once the answer is complete.

A chunk is not a token: with speculative decoding or batched output, a chunk has several tokens; a parser
delays some tokens, and hidden reasoning is never sent. Exact counts come from token ids, or from a running
total in each chunk. Without these, the server's total at the end decides which chunks count as one token
each. If no interpretation of the chunks adds up to that total, some tokens have no known time, and the
metrics that need the times of single tokens are not computed.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter

from msgspec import Struct, field

from sparktop.model.load import TokenSource

_SLACK = 1.5
"""Maximum ratio of the time of the tokens before the first chunk to their time at the answer's mean rate."""
_FINISH_SHARE = 0.5
"""A finish event counts as a token if it arrives after the last chunk by more than this fraction of the mean
time between two chunks. A finish event that is not a token arrives together with the last chunk."""


class CountedTokens(Struct, frozen=True):
    """The tokens of a complete answer, by the read that brought them."""

    times: array[float]
    """Time in seconds of each read that brought tokens."""
    counts: list[int]
    """Tokens of each of those reads."""
    source: TokenSource | None
    """Where the counts come from; None if no token arrived."""
    generated: int | None
    """Total of generated tokens as counted by the server; None if the server sends no count."""
    hidden_before: int = 0
    """Number of tokens that were generated before the first visible chunk, and are not in `counts`."""
    answer_from: int = 0
    """Index of the first read with more than reasoning; `len(times)` if there is none."""
    spans_all: bool = False
    """True if the first and the last of `times` are those of the first and the last token, although `counts`
    may lack tokens in between."""


class TokenCount(Struct):
    """Collects the chunks of an answer while it arrives, and counts the tokens of each read at the end."""

    times: array[float] = field(default_factory=lambda: array("d"))
    """Time of each read with a chunk that certainly has tokens."""
    counts: list[int] = field(default_factory=list)
    """Tokens of each of those reads, as far as known while the answer arrives."""
    answer_at: float | None = None
    """Time of the first read with more than reasoning; None if there is none."""
    _all_ids: bool = True
    _all_totals: bool = True
    _total: int = 0
    """Latest running total that the server sent."""
    _sizes: list[int] = field(default_factory=list)
    """Tokens of each chunk, from differences of the running total."""
    _empty_at: list[float] = field(default_factory=list)
    """Time of each chunk with an empty text."""
    _finish_at: float | None = None
    """Time of a finish event that shows no token."""
    _role_at: float | None = None
    """Time of a first event that shows no token (the role alone)."""
    _ended_at: float | None = None
    """Time of the event with the finish reason, which arrives with the last token."""

    def chunk(self, tokens: int, total: int | None, *, has_ids: bool) -> int:
        """Record a chunk that shows `tokens` tokens, and return how many tokens to count for it.

        `total` is the running total of tokens in this chunk; None if the server does not send one. Return how
        much it grew since the previous chunk, or `tokens` if there is no usable total.
        """
        if self._all_totals and total is not None and total >= self._total and (total or not tokens):
            count, self._total = total - self._total, total
            self._sizes.append(count)
            self._all_ids &= count == tokens and (has_ids or not tokens)
            return count
        if tokens:
            self._all_totals = False
            self._all_ids &= has_ids
        return tokens

    def read(self, at: float, count: int, *, is_reasoning: bool) -> None:
        """Record that a network read at the time `at` brought `count` tokens.

        `is_reasoning` is True if all these tokens are reasoning.
        """
        if self.answer_at is None and not is_reasoning:
            self.answer_at = at
        self.times.append(at)
        self.counts.append(count)

    def empty(self, at: float) -> None:
        """Record a chunk with an empty text at the time `at`; it may later count as a token without text."""
        self._empty_at.append(at)

    def begin(self, at: float, *, shows_token: bool) -> None:
        """Record the first event of the stream, which arrived at the time `at`.

        If `shows_token` is False, the event has only the role "assistant".
        """
        if not shows_token:
            self._role_at = at

    def finish(self, at: float, *, shows_token: bool) -> None:
        """Record the finish event, which arrived at the time `at`.

        If `shows_token` is False, `counted` may still count the event as the last token.
        """
        self._ended_at = at
        if not shows_token:
            self._finish_at = at

    @property
    def prelude_s(self) -> float | None:
        """Seconds from the first event of the stream to its finish event.

        None if either is missing, or if the first event has more than the role "assistant".
        """
        begun, ended = self._role_at, self._ended_at
        return None if begun is None or ended is None else ended - begun

    def counted(self, reported: int | None, *, first_event_is_token: bool = False) -> CountedTokens:
        """Return the tokens of the complete answer, with the best counts that its chunks allow.

        `reported` is the total that the server sent at the end (None: not sent). `first_event_is_token` is
        True for a server whose first event, with only the role "assistant", comes with its first token.
        """
        times, counts, hidden = self.times, self.counts, 0
        placed = sum(counts)
        if times and self._all_ids and reported in {None, placed}:
            source, reported = TokenSource.TOKEN_IDS, placed
        elif self._all_totals and self._total:
            source = TokenSource.CHUNK_USAGE
            # A stream that broke off has no total at its end, and a total of 0 in the first event is not a
            # count.
            reported = max(reported or 0, self._total)
            hidden = self._hidden_before()
            begin = self._role_at
            if hidden and first_event_is_token and begin is not None and begin < times[0]:
                times, counts, hidden = array("d", [begin, *times]), [1, counts[0] - 1, *counts[1:]], 0
            counts = [counts[0] - hidden, *counts[1:]]
        else:
            source = TokenSource.CHUNKS if reported is None else TokenSource.USAGE
        if reported is not None and reported > placed:
            times, counts = self._with_silent(times, counts, reported - placed)
        spans_all = False
        if source is TokenSource.USAGE and first_event_is_token and (reported or 0) > sum(counts):
            spanned = self._with_both_ends(times, counts, reported or 0)
            spans_all = spanned is not None
            times, counts = spanned or (times, counts)
        answer_from = len(times) if self.answer_at is None else bisect_left(times, self.answer_at)
        known = source if times or reported else None
        return CountedTokens(times, counts, known, reported, hidden, answer_from, spans_all)

    def _hidden_before(self) -> int:
        """Return how many tokens the server generated but did not send before the first chunk with a total.

        The first running total includes these hidden tokens. If this total is at most the mean number of
        tokens in a later chunk, no token is hidden: return 0. Otherwise one token belongs to the first chunk
        and all others are hidden. The last chunk is left out of the mean, because it may be smaller.
        """
        first, *later = [size for size in self._sizes if size]
        usual = later[:-1] or later or [1]
        return 0 if first <= max(1, round(sum(usual) / len(usual))) else first - 1

    def _with_silent(
        self, times: array[float], counts: list[int], missing: int
    ) -> tuple[array[float], list[int]]:
        """Return (times, counts) of the reads with one token added for each event without text.

        Three groups of events are possible: all chunks with empty text, these chunks and a late finish event,
        or a late finish event alone. The group that has exactly `missing` events is added. If no group does,
        return the arguments unchanged.
        """
        silent = list(self._empty_at)
        if len(silent) != missing and self._finish_at is not None and self._is_late(self._finish_at):
            silent = [*silent, self._finish_at] if len(silent) + 1 == missing else [self._finish_at]
        if len(silent) != missing:
            return times, counts
        reads = Counter(dict(zip(times, counts, strict=True)))
        reads.update(silent)
        ordered = sorted(reads)
        return array("d", ordered), [reads[at] for at in ordered]

    def _with_both_ends(
        self, times: array[float], counts: list[int], reported: int
    ) -> tuple[array[float], list[int]] | None:
        """Return (times, counts) of the reads with a token added for the first and for the finish event.

        Neither event shows a token, but a token may have come with it. Return None if no token can have come
        with the first event: the next read came later than `missing` tokens take at the mean token rate.
        Here, `missing` is `reported` minus the sum of `counts`.
        """
        begin, end = self._role_at, self._ended_at
        if begin is None or end is None or not times or not begin <= times[0] <= end:
            return None
        reads = dict(zip(times, counts, strict=True))
        for at in (begin, end):
            if at not in reads and sum(reads.values()) < reported:
                reads[at] = 1
        missing = reported - sum(counts)
        pace_s = (end - begin) / max(1, reported - reads[begin]) if begin in reads else 0.0
        if times[0] - begin > _SLACK * (missing + 1) * pace_s:
            return None
        ordered = sorted(reads)
        return array("d", ordered), [reads[at] for at in ordered]

    def _is_late(self, finish: float) -> bool:
        """Return whether a finish event at the time `finish` came late enough to count as a token."""
        times = [*self.times, *self._empty_at]
        if len(times) < 2:  # noqa: PLR2004 - a gap has two ends
            return not times or finish > max(times)
        gap = (max(times) - min(times)) / (len(times) - 1)
        return finish - max(times) > _FINISH_SHARE * gap
