"""The summary of a trace before it is replayed: requests, duration, rate, lengths, repeated prompts."""

from __future__ import annotations

from array import array
from collections import Counter

from msgspec import Struct

from sparktop.sweep.plan.traces.formats import TraceFormat
from sparktop.sweep.plan.traces.request import TracedRequest
from sparktop.sweep.plan.traces.trace import Trace, TraceChoice

_MOST_BLOCKS = 2_000_000
"""Maximum number of distinct blocks of which the repetitions are counted."""


class TraceSummary(Struct, frozen=True):
    """What a replay will send; all of it at the chosen speed."""

    form: TraceFormat
    requests: int
    conversations: int
    """Requests that wait for no other one."""
    skipped: int
    """Requests left out because they failed when they were recorded."""
    shortened: int
    """Pauses that were shortened."""
    duration_s: float
    """Seconds from the first request to the last one, if no answer takes any time."""
    waits: bool
    """Whether requests wait for answers, so that the replay lasts longer than `duration_s`."""
    prompt_tokens: int
    """Sum; of prompts that the file holds as text the tokens are not known."""
    output_tokens: int
    longest_prompt: int
    longest_answer: int
    repeated_share: float | None = None
    """Share (0 to 1) of the prompt tokens that an endless prefix cache would have; None if unknown."""
    lengths: tuple[tuple[int, int], ...] = ()
    """(tokens of prompt and answer, number of requests of that length), ascending by length."""
    texts: int = 0
    """Requests whose prompt the file holds as text."""
    begin_s: float = 0.0
    """Seconds from the begin of the part to its first request."""

    @property
    def per_s(self) -> float:
        """Mean rate in requests per second; 0 for a single request or requests at one time."""
        return (self.requests - 1) / self.duration_s if self.duration_s > 0 else 0.0

    @property
    def mean_prompt(self) -> int:
        """Mean length in tokens of the prompts of known length; 0 if the length of none is known."""
        known = self.requests - self.texts
        return round(self.prompt_tokens / known) if known else 0

    @property
    def mean_answer(self) -> int:
        """Mean length of an answer in tokens."""
        return round(self.output_tokens / self.requests)

    def beyond(self, context_tokens: int) -> int:
        """Return how many requests are longer than a context, prompt and answer together."""
        return sum(count for tokens, count in self.lengths if tokens > context_tokens)


def summarise(choice: TraceChoice) -> TraceSummary:
    """Read the chosen part of a trace once and return its summary.

    Raises:
        TraceError: the file cannot be used.
    """
    trace = Trace(choice)
    lengths: Counter[int] = Counter()
    count, prompts, outputs, longest, most_output = 0, 0, 0, 0, 0
    waits, texts = False, 0
    earliest = array("d")
    """Earliest time of each request."""
    repeated = _Repeated()
    begin_s, last_s = None, 0.0
    for one in trace:
        count += 1
        length = one.prompt_tokens or 0
        prompts += length
        outputs += one.output_tokens
        lengths[length + one.output_tokens] += 1
        texts += one.prompt_tokens is None
        longest, most_output = max(longest, length), max(most_output, one.output_tokens)
        at_s = one.due_s or 0.0
        if one.after is not None:
            waits = True
            at_s = max(at_s, earliest[one.after] + one.delay_s)
        begin_s = at_s if begin_s is None else begin_s
        last_s = max(last_s, at_s)
        earliest.append(at_s)
        repeated.add(one, length)
    assert trace.form is not None  # noqa: S101 - a trace without a format raises
    return TraceSummary(
        form=trace.form,
        requests=count,
        conversations=trace.conversations,
        skipped=trace.skipped,
        shortened=trace.shortened,
        duration_s=last_s - (begin_s or 0.0),
        waits=waits,
        prompt_tokens=prompts,
        output_tokens=outputs,
        longest_prompt=longest,
        longest_answer=most_output,
        repeated_share=repeated.share(prompts),
        lengths=tuple(sorted(lengths.items())),
        texts=texts,
        begin_s=begin_s or 0.0,
    )


class _Repeated:
    """Counts the prompt tokens that an earlier prompt has at its begin, too."""

    def __init__(self) -> None:
        self._tokens = 0
        self._blocks: dict[tuple[str, int], int] = {}
        """Tokens of each block, of the longest prompt that it ends."""
        self._lengths: dict[str, int] = {}
        self._is_known = True

    def add(self, one: TracedRequest, length: int) -> None:
        if not self._is_known:
            return
        if one.blocks:
            self._tokens += self._add_blocks(one, length)
        elif one.scope:
            self._tokens += min(self._lengths.get(one.scope, 0), length)
            self._lengths[one.scope] = max(self._lengths.get(one.scope, 0), length)
        if len(self._blocks) + len(self._lengths) > _MOST_BLOCKS:
            self._is_known = False
            self._blocks.clear()
            self._lengths.clear()

    def _add_blocks(self, one: TracedRequest, length: int) -> int:
        """Return how many of a prompt's first tokens are in blocks of earlier prompts, and add its blocks."""
        size, found, is_begin = one.block_tokens, 0, True
        for place, block in enumerate(one.blocks):
            needed = min(size, length - place * size)
            if needed <= 0:
                break
            held = self._blocks.get((one.scope, block), 0)
            if is_begin:
                found += min(held, needed)
                is_begin = held >= needed
            if held < needed:
                self._blocks[one.scope, block] = needed
        return found

    def share(self, prompts: int) -> float | None:
        has_any = bool(self._blocks or self._lengths)
        return self._tokens / prompts if self._is_known and has_any and prompts else None
