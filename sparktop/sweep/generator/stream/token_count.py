"""How many tokens each read of one answer brought, decided once the answer is complete.

A chunk is not a token: speculative decoding and batched output put several into one, a parser holds some
back, and hidden reasoning is never sent. Exact counts come from token ids or from a running total in each
chunk. Without them the server's total at the end decides which chunks are one token each; where no reading of
the chunks adds up to it, the difference stays unplaced and the figures that need single tokens are withheld.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

from sparktop.model.load import TokenSource

_SLACK = 1.5
"""How much longer than at the mean pace the tokens before the first chunk may have taken."""
_FINISH_SHARE = 0.5
"""A finish event is a token of its own if it comes at least this part of a mean gap after the last chunk: one
that only ends the stream comes with that chunk."""


@dataclass(frozen=True, slots=True)
class CountedTokens:
    """The tokens of one answer."""

    times: array[float]
    """Of each read that brought tokens, in seconds."""
    counts: list[int]
    """Tokens of each of those reads."""
    source: TokenSource | None
    """None without any token."""
    generated: int | None
    """All tokens by the server's count; None if it sends none."""
    hidden_before: int = 0
    """Tokens made before the first chunk that shows one."""
    answer_from: int = 0
    """Index of the first read with something other than reasoning."""
    spans_all: bool = False
    """The first and the last read are those of the first and the last token."""


@dataclass(slots=True)
class TokenCount:
    """Counts the chunks of one answer."""

    times: array[float] = field(default_factory=lambda: array("d"))
    """Of each read with a chunk that certainly holds tokens."""
    counts: list[int] = field(default_factory=list)
    answer_at: float | None = None
    """When something other than reasoning first came."""
    _all_ids: bool = True
    _all_totals: bool = True
    _total: int = 0
    """The newest running total."""
    _sizes: list[int] = field(default_factory=list)
    """Tokens of each chunk by the running totals."""
    _empty_at: list[float] = field(default_factory=list)
    """Of each chunk with an empty text."""
    _finish_at: float | None = None
    """Of a finish event that shows no token."""
    _role_at: float | None = None
    """Of a first event that shows no token: the role alone."""
    _ended_at: float | None = None
    """Of the event with the reason of the end: it comes with the last token."""

    def chunk(self, tokens: int, total: int | None, *, has_ids: bool) -> int:
        """Count a chunk that shows `tokens`; return how many it stands for."""
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
        """Note a read that brought `count` tokens."""
        if self.answer_at is None and not is_reasoning:
            self.answer_at = at
        self.times.append(at)
        self.counts.append(count)

    def empty(self, at: float) -> None:
        """Note a chunk with an empty text: a token without text, or nothing."""
        self._empty_at.append(at)

    def begin(self, at: float, *, shows_token: bool) -> None:
        """Note the first event, whatever it holds."""
        if not shows_token:
            self._role_at = at

    def finish(self, at: float, *, shows_token: bool) -> None:
        """Note a finish event: if it shows no token, it may stand for the last one."""
        self._ended_at = at
        if not shows_token:
            self._finish_at = at

    @property
    def prelude_s(self) -> float | None:
        """Time from a first event with the role alone to the end of the answer; None without one."""
        begun, ended = self._role_at, self._ended_at
        return None if begun is None or ended is None else ended - begun

    def counted(self, reported: int | None, *, first_event_is_token: bool = False) -> CountedTokens:
        """Return the tokens of the answer; `reported` is the server's total at its end.

        `first_event_is_token`: this server sends the role when it has made the first token.
        """
        times, counts, hidden = self.times, self.counts, 0
        placed = sum(counts)
        if times and self._all_ids and reported in {None, placed}:
            source, reported = TokenSource.TOKEN_IDS, placed
        elif self._all_totals and self._total:
            source = TokenSource.CHUNK_USAGE
            # A broken stream has no total at its end, and the first event's 0 is none.
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
        """Return how many tokens of the first chunk it cannot have shown.

        A prefill makes one token. A first chunk with no more tokens than those after it have on average shows
        all of them (batched output); in a larger one the rest was made unseen. The last chunk holds what was
        left over and stays out of the average.
        """
        first, *later = [size for size in self._sizes if size]
        usual = later[:-1] or later or [1]
        return 0 if first <= max(1, round(sum(usual) / len(usual))) else first - 1

    def _with_silent(
        self, times: array[float], counts: list[int], missing: int
    ) -> tuple[array[float], list[int]]:
        """Return the reads with those chunks as tokens that showed none, if they are just what is missing."""
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
        """Return the reads with the first event as the first token and the end as the last one.

        None where that cannot be: the first chunk must follow the first event as soon as the missing tokens
        can have been made, else the first event came ahead of the first token after all.
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
        """Return whether a finish event came as late as a further token does."""
        times = [*self.times, *self._empty_at]
        if len(times) < 2:  # noqa: PLR2004 - a gap has two ends
            return not times or finish > max(times)
        gap = (max(times) - min(times)) / (len(times) - 1)
        return finish - max(times) > _FINISH_SHARE * gap
