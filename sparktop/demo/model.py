"""A simulated engine: continuous batching as a pure function of model time.

Each step gives every running request one token, spends what is left of the step's token budget on prompts,
and takes longer the more it does. Requests wait for one of the slots and for KV blocks; when the blocks run
out, the newest request is preempted and its tokens are computed again. Times are model seconds: nothing here
looks at a clock, so the same seed and the same time always give the same figures.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from sparktop.demo.load import Arrivals, Request, Swing
from sparktop.demo.tally import Tally


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """What a simulated engine can do: by default about what gpt-oss-120b does on one DGX Spark."""

    model: str = "openai/gpt-oss-120b"
    max_model_len: int = 8192
    slots: int = 16
    """Requests that run at once (vLLM's --max-num-seqs)."""
    kv_blocks: int = 640
    block_tokens: int = 16
    step_tokens: int = 512
    """Tokens that one step computes at most (vLLM's --max-num-batched-tokens)."""
    step_base_s: float = 0.0145
    """A step that decodes one request takes this and one `step_request_s`: 60 tokens/s."""
    step_request_s: float = 0.0022
    prompt_token_s: float = 0.0005
    """2,000 prompt tokens/s."""


@dataclass(slots=True, eq=False)
class _Sequence:
    """A request on its way through the engine."""

    request: Request
    blocks: int = 0
    to_compute: int = 0
    """Tokens still to be computed before it makes its next one (again, after a preemption)."""
    generated: int = 0
    preemptions: int = 0
    admitted_s: float | None = None
    first_token_s: float | None = None
    last_token_s: float = 0.0

    @property
    def length(self) -> int:
        """Tokens that it holds in the KV cache once computed."""
        return self.request.prompt_tokens + self.generated


class EngineModel:
    """One simulated engine; `advance` moves it through model time, `tally` counts as vLLM would."""

    def __init__(self, spec: EngineSpec, swing: Swing, seed: str) -> None:
        """Start empty at model time 0."""
        self.spec = spec
        self.tally = Tally()
        self._arrivals = Arrivals(swing, seed)
        self._waiting: deque[_Sequence] = deque()
        self._running: list[_Sequence] = []
        self._free_blocks = spec.kv_blocks
        self._clock_s = 0.0
        self._step_end_s: float | None = None
        self._decoding: list[_Sequence] = []
        self._prefilling: list[tuple[_Sequence, int]] = []

    @property
    def running(self) -> int:
        """Requests in the batch."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Requests that have arrived and are not in the batch."""
        return len(self._waiting)

    @property
    def kv_usage(self) -> float:
        """Used share of the KV blocks, 0 to 1."""
        return 1.0 - self._free_blocks / self.spec.kv_blocks

    def advance(self, until_s: float) -> None:
        """Do all that has happened up to a model time; a step counts when it ends."""
        while True:
            if self._step_end_s is not None:
                if self._step_end_s > until_s:
                    break
                self._clock_s = self._step_end_s
                self._finish_step()
            self._queue_arrivals(self._clock_s)
            if not self._running and not self._waiting:
                if self._arrivals.next_at_s > until_s:
                    break
                self._clock_s = self._arrivals.next_at_s
                self._queue_arrivals(self._clock_s)
            self._start_step()
        self._queue_arrivals(until_s)

    def _queue_arrivals(self, until_s: float) -> None:
        self._waiting.extend(_Sequence(request) for request in self._arrivals.take(until_s))

    def _start_step(self) -> None:
        spec = self.spec
        preemptions = self.tally.preemptions
        self._decoding = [sequence for sequence in self._running if not sequence.to_compute]
        for sequence in list(self._decoding):
            # One that was preempted for an older one earlier in this loop holds no blocks any more.
            if sequence in self._decoding:
                self._make_room(sequence)
        self._prefilling = []
        budget = spec.step_tokens - len(self._decoding)
        for sequence in self._running:
            if sequence.to_compute and budget:
                budget -= self._compute(sequence, budget)
        # As in vLLM, a step that preempted admits nobody: the two would take turns for ever.
        crowded = self.tally.preemptions > preemptions
        while self._waiting and len(self._running) < spec.slots and budget and not crowded:
            sequence = self._waiting[0]
            blocks = -(-(sequence.length + 1) // spec.block_tokens)
            if blocks > self._free_blocks:
                break
            self._admit(self._waiting.popleft(), blocks)
            budget -= self._compute(sequence, budget)
        computed = sum(tokens for _, tokens in self._prefilling)
        took_s = spec.step_base_s + spec.step_request_s * len(self._decoding) + spec.prompt_token_s * computed
        self._step_end_s = self._clock_s + took_s

    def _compute(self, sequence: _Sequence, budget: int) -> int:
        tokens = min(budget, sequence.to_compute)
        self._prefilling.append((sequence, tokens))
        return tokens

    def _admit(self, sequence: _Sequence, blocks: int) -> None:
        sequence.blocks = blocks
        self._free_blocks -= blocks
        again = sequence.preemptions > 0
        sequence.to_compute = sequence.length - (0 if again else sequence.request.cached_tokens)
        self._running.append(sequence)
        if not again:
            sequence.admitted_s = self._clock_s
            self.tally.admitted(sequence.request)

    def _make_room(self, sequence: _Sequence) -> None:
        """Give a sequence the block that its next token needs, taking it from the newest if there is none."""
        if sequence.length + 1 <= sequence.blocks * self.spec.block_tokens:
            return
        while not self._free_blocks:
            newest = self._running[-1]
            self._preempt(newest)
            if newest is sequence:
                return
        self._free_blocks -= 1
        sequence.blocks += 1

    def _preempt(self, sequence: _Sequence) -> None:
        self._running.remove(sequence)
        if sequence in self._decoding:
            self._decoding.remove(sequence)
        self._free_blocks += sequence.blocks
        sequence.blocks = 0
        sequence.preemptions += 1
        self._waiting.appendleft(sequence)
        self.tally.preempted()

    def _finish_step(self) -> None:
        self._step_end_s = None
        tokens = len(self._decoding)
        for sequence in self._decoding:
            self._emit(sequence)
        for sequence, computed in self._prefilling:
            sequence.to_compute -= computed
            tokens += computed
            if not sequence.to_compute:
                self._emit(sequence)
        self.tally.stepped(tokens)

    def _emit(self, sequence: _Sequence) -> None:
        """Count the token that a sequence has just made, and end it after its last."""
        now, request = self._clock_s, sequence.request
        if sequence.first_token_s is None:
            sequence.first_token_s = now
            self.tally.first_token(request, now - request.at_s)
        else:
            self.tally.next_token(now - sequence.last_token_s)
        sequence.last_token_s = now
        sequence.generated += 1
        if sequence.generated >= request.output_tokens:
            self._running.remove(sequence)
            self._free_blocks += sequence.blocks
            assert sequence.admitted_s is not None  # noqa: S101 - it was admitted before it made a token
            self.tally.finished(request, sequence.admitted_s, sequence.first_token_s, now)
