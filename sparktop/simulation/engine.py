"""A simulated inference engine: continuous batching as a pure function of model time.

Each step generates a token for every decoding request. The rest of the step's token budget computes prompts,
oldest request first. The profile states how long a step takes for this work, at the GPU clock that the
temperature of the nodes allows. Requests wait for a place in the batch and for KV blocks. When the blocks run
out, the newest request is preempted, moves to the front of the queue and is computed again (as in vLLM's
scheduler, version 1).

No clock is read here: the caller supplies the time. A step includes the requests that arrived strictly before
its start. So the same requests at the same times produce the same events, into however many calls of
`advance` the time is divided.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_left, insort
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from operator import attrgetter

from msgspec import Struct, field

from sparktop.model.failure import FailureKind, RequestFailure
from sparktop.model.load import AnswerRead, EndReason, RequestEnded
from sparktop.simulation.thermal import REFERENCE_CLOCK_MHZ, WAITING_W, NodeThermal, step_power_w

# Every decoding request generates one token per step. So three numbers follow from the count of steps and
# are not updated in each step: the tokens generated, the step in which the request ends, and the steps in
# which it needs another block. A hundred steps therefore cost as much computing time as one.


class RunningBatch:
    """The running requests of one simulated engine, with the KV blocks that they hold."""

    def __init__(self, *, kv_blocks: int, block_tokens: int) -> None:
        """Create an empty batch with a KV cache of `kv_blocks` blocks of `block_tokens` tokens each."""
        self.pool = BlockPool(kv_blocks)
        self.running: dict[str, EngineSequence] = {}
        """By request id, longest running first; decoding requests come before those still in prefill."""
        self.steps = 0
        """Number of steps so far; steps without decoding requests may be missing."""
        self._block_tokens = block_tokens
        self._reserved_step = 0
        """The step up to whose end blocks are allocated: the last completed step, or the one in progress."""

    def in_phase(self, phase: State) -> list[EngineSequence]:
        """Return the requests that decode, or that are still in prefill, longest running first."""
        return [sequence for sequence in self.running.values() if sequence.phase is phase]

    @property
    def context_tokens(self) -> int:
        """Number of context tokens whose KV cache entries the next step reads, of all decoding requests."""
        decoding = self.in_phase(State.DECODE)
        return sum(sequence.request.prompt_tokens + self.generated_tokens(sequence) for sequence in decoding)

    @property
    def used_blocks(self) -> int:
        """Number of KV blocks in use, as vLLM counts them: a prompt takes its blocks chunk by chunk.

        Here all blocks of a prompt are reserved when its request is admitted.
        """
        size, in_prefill = self._block_tokens, self.in_phase(State.PREFILL)
        unused = sum(sequence.blocks - math.ceil(sequence.computed / size) for sequence in in_prefill)
        return self.pool.held - unused

    def generated_tokens(self, sequence: EngineSequence) -> int:
        """Return the number of tokens that a request in the batch has generated so far."""
        return self.steps - sequence.joined_step if sequence.phase is State.DECODE else sequence.generated

    def admit(self, sequence: EngineSequence) -> bool:
        """Move a waiting request into the batch and return True; return False if KV blocks are missing.

        Cached blocks of the prompt's beginning are shared instead of computed again. The last token is always
        computed, even if its block is cached, because this computation yields the first new token.
        """
        size, pool = self._block_tokens, self.pool
        prefix = sequence.request.block_hashes[: (sequence.length - 1) // size]
        hit_blocks = prefix[: pool.match(prefix)]
        needed_blocks = -(-sequence.length // size) - len(hit_blocks)
        if needed_blocks > pool.available - pool.kept_among(hit_blocks):
            return False
        pool.hold(hit_blocks)
        pool.allocate(needed_blocks)
        sequence.shared = list(hit_blocks)
        sequence.offered = len(hit_blocks)
        sequence.blocks = len(hit_blocks) + needed_blocks
        sequence.computed = len(hit_blocks) * size
        sequence.phase = State.PREFILL
        self.running[sequence.request.request_id] = sequence
        return True

    def record_computed(self, sequence: EngineSequence, tokens: int) -> None:
        """Record that `tokens` more tokens of a request's prompt are computed.

        Blocks that become full can be shared with other requests, as in vLLM.
        """
        sequence.computed += tokens
        self._cache_full_blocks(sequence, sequence.computed)

    def begin_decoding(self, sequence: EngineSequence) -> None:
        """Change a request from prefill to decoding: its prompt is computed and its first token generated."""
        sequence.phase = State.DECODE
        sequence.joined_step = self.steps - sequence.generated

    def remove(self, sequence: EngineSequence) -> None:
        """Remove a request that has ended or is preempted from the batch, and release its blocks."""
        size = self._block_tokens
        del self.running[sequence.request.request_id]
        if sequence.phase is State.DECODE:
            sequence.generated = self.generated_tokens(sequence)
            stored = sequence.length - 1  # its newest token is in no block yet
            reserved = stored + self._reserved_step - self.steps  # with its place, if its step is under way
            sequence.blocks = -(-reserved // size)
            self._cache_full_blocks(sequence, stored)
        self.pool.release(sequence.blocks - len(sequence.shared), sequence.shared)
        sequence.shared = []
        sequence.blocks = sequence.computed = sequence.offered = 0

    def blocks_for(self, steps: int) -> int:
        """Return the number of blocks that the next `steps` steps need, beyond those already allocated.

        A decoding request has its prompt and one token for each step since `joined_step`; it needs a block in
        each step that stores a token at a block's beginning.
        """
        size, blocks = self._block_tokens, 0
        for sequence in self.in_phase(State.DECODE):
            # Index of the last stored token: the newest token is not stored, and indices start at 0.
            last = sequence.request.prompt_tokens + self._reserved_step - sequence.joined_step - 2
            blocks += (last + steps) // size - last // size
        return blocks

    def reserve_step(self) -> bool:
        """Allocate the KV blocks that the next step needs; return True.

        If too few blocks are available, allocate none and return False.
        """
        needed_blocks = self.blocks_for(1)
        if needed_blocks > self.pool.available:
            return False
        self.pool.allocate(needed_blocks)
        self._reserved_step += 1
        return True

    def complete_steps(self, steps: int, *, under_way: bool) -> None:
        """Record that `steps` steps are complete.

        `under_way` is whether another step with the same batch follows at once. If so, the blocks for that
        step are allocated too.
        """
        self.steps += steps
        further_steps = self.steps + under_way - self._reserved_step
        if further_steps > 0:
            self.pool.allocate(self.blocks_for(further_steps))
            self._reserved_step += further_steps

    def steps_to_finish(self) -> int:
        """Return the number of steps until the first of the decoding requests ends.

        At least one request must be decoding.
        """
        return min(map(self._tokens_left, self.in_phase(State.DECODE)))

    def finished(self) -> list[EngineSequence]:
        """Return the decoding requests that have generated their last token."""
        return [sequence for sequence in self.in_phase(State.DECODE) if self._tokens_left(sequence) <= 0]

    def _tokens_left(self, sequence: EngineSequence) -> int:
        return sequence.request.output_tokens - self.generated_tokens(sequence)

    def _cache_full_blocks(self, sequence: EngineSequence, stored: int) -> None:
        """Let other requests find the blocks that the first `stored` tokens of a request fill."""
        hashes = sequence.request.block_hashes
        while sequence.offered < min(len(hashes), stored // self._block_tokens):
            block = hashes[sequence.offered]
            sequence.offered += 1
            if self.pool.cache(block):
                sequence.shared.append(block)


# Requests to a simulated engine, and their state and times in the engine.


class SimulatedRequest(Struct, frozen=True):
    """A request to a simulated engine, with the length of its answer known in advance."""

    request_id: str
    prompt_tokens: int
    output_tokens: int
    """Number of tokens after which the request ends, at least 1."""
    reason: EndReason = EndReason.LENGTH
    block_hashes: tuple[int, ...] = ()
    """A hash for each full block of the request's tokens, which covers all tokens up to the block's end.

    Equal hashes mean equal beginnings, which the prefix cache may hold. Hashes may extend into the answer,
    for callers that know the answer in advance. Without hashes, nothing of the request is cached.
    """


DrawLengths = Callable[[random.Random], tuple[int, int]]
"""Draws (prompt tokens, output tokens) of a request."""


class State(Enum):
    """State of a request in a simulated engine."""

    WAITING = 0
    PREFILL = 1
    DECODE = 2
    ENDED = 3


class EngineSequence(Struct, eq=False):
    """A request in a simulated engine, with its progress and times."""

    request: SimulatedRequest
    arrived_s: float
    phase: State = State.WAITING
    generated: int = 0
    """Number of tokens generated; not updated while it decodes (see `RunningBatch.generated_tokens`)."""
    computed: int = 0
    """Number of tokens in the KV cache; counted only while the request's prompt is computed."""
    blocks: int = 0
    """Number of KV blocks held, including shared ones; counted only while the request's prompt is
    computed."""
    shared: list[int] = field(default_factory=list)
    """Hashes of those blocks of the request that other requests can find and share."""
    offered: int = 0
    """Number of full blocks offered to the prefix cache, with those that it had before."""
    joined_step: int = 0
    """Used while the request decodes: the batch's step count minus the request's generated tokens, which
    is constant."""
    cached_tokens: int = 0
    """Prompt tokens that were in the prefix cache when the request first joined the batch."""
    admitted_s: float | None = None
    """Time when the request first joined the batch; None until then, as the other times until they come."""
    first_token_s: float | None = None
    last_token_s: float | None = None
    ended_s: float | None = None
    reason: EndReason | None = None
    preemptions: int = 0

    @property
    def length(self) -> int:
        """Number of prompt tokens and of generated tokens.

        While the request decodes, tokens generated since decoding began are not included; see
        `RunningBatch.generated_tokens`.
        """
        return self.request.prompt_tokens + self.generated


# A KV cache in blocks: their allocation, and a prefix cache of released blocks.
#
# A block whose tokens have a hash can be shared: requests with the same beginning hold it together. A
# released block stays cached, but counts as free. If no empty block is left, the cached block that has been
# unused longest is emptied and reused, as in vLLM's block pool.


class BlockPool:
    """The blocks of one engine's KV cache.

    Each block is empty, held by one or several requests, or kept (cached, but held by no request).
    """

    def __init__(self, capacity: int) -> None:
        """Create a pool of `capacity` empty blocks."""
        self.capacity = capacity
        self._empty = capacity
        self._holders: dict[int, int] = {}
        """Number of requests that hold a block, by the block's hash."""
        self._kept: OrderedDict[int, None] = OrderedDict()
        """Hashes of cached blocks without a holder, longest unused first."""

    @property
    def available(self) -> int:
        """Number of blocks that can be allocated now."""
        return self._empty + len(self._kept)

    @property
    def held(self) -> int:
        """Number of blocks held by requests, shared ones counted once."""
        return self.capacity - self.available

    def match(self, hashes: Sequence[int]) -> int:
        """Return how many of the first blocks in `hashes` are in the cache.

        Blocks are counted up to the first one that no request holds and that is not cached either.
        """
        count = 0
        for block in hashes:
            if block not in self._holders and block not in self._kept:
                break
            count += 1
        return count

    def kept_among(self, hashes: Sequence[int]) -> int:
        """Return how many of the blocks in `hashes` are cached without a request that holds them.

        Such blocks count as available until a request holds them.
        """
        return sum(block in self._kept for block in hashes)

    def hold(self, hashes: Sequence[int]) -> None:
        """Add a holder to each block in `hashes`; each must be cached or held already (see `match`)."""
        for block in hashes:
            if block in self._kept:
                del self._kept[block]
                self._holders[block] = 1
            else:
                self._holders[block] += 1

    def allocate(self, count: int) -> None:
        """Allocate `count` blocks without a hash.

        If too few blocks are empty, reuse cached blocks, those that were unused longest first.

        Raises:
            ValueError: fewer blocks are available.
        """
        if count > self.available:
            raise ValueError(f"{count} blocks wanted, {self.available} available")
        taken_blocks = min(count, self._empty)
        self._empty -= taken_blocks
        for _ in range(count - taken_blocks):
            self._kept.popitem(last=False)

    def cache(self, block: int) -> bool:
        """Assign the hash `block` to an allocated block, so that other requests find it; return True.

        If another block has this hash already, do nothing and return False.
        """
        if block in self._holders or block in self._kept:
            return False
        self._holders[block] = 1
        return True

    def release(self, anonymous: int, hashes: Sequence[int] = ()) -> None:
        """Release `anonymous` blocks that have no hash, and remove one holder of each block in `hashes`.

        Blocks without a hash become empty; a block with a hash is cached once it has no holder. The last
        block of a prefix will be reused before the earlier blocks, because without them it is useless.
        """
        self._empty += anonymous
        for block in reversed(hashes):
            holders = self._holders[block] - 1
            if holders:
                self._holders[block] = holders
            else:
                del self._holders[block]
                self._kept[block] = None


LONGEST_STRETCH_S = 2.0
"""Longest time in seconds until the clock rate is updated: heat has a time constant of 75 s."""

ENGINE_ERROR = "the simulated engine broke the request off"

EngineEvent = AnswerRead | RequestEnded
"""Events of an engine's requests; their start is reported by the sender."""


class Engine:
    """A simulated inference engine with its queue, batch and counters.

    `advance` moves it through model time.
    """

    def __init__(
        self,
        profile: EngineProfile,
        *,
        nodes: Sequence[NodeThermal] | None = None,
        seed: int | str = 0,
        start_s: float = 0.0,
        token_events: bool = True,
        on_end: Callable[[EngineSequence], None] | None = None,
    ) -> None:
        """Start at model time `start_s` without requests; `nodes` are the machines that the engine runs on.

        `seed` fixes the noise of step times. If `token_events` is false, only the first token of a request is
        reported as an event, so that a thousand engines fit into a process. `on_end` receives each request
        when it ends.
        """
        self.profile = profile
        self.nodes = (
            tuple(nodes)
            if nodes is not None
            else tuple(NodeThermal(at=start_s) for _ in range(profile.nodes))
        )
        """The machines that the engine runs on; the slowest sets the pace."""
        self.tally = EngineTally(draft_length=len(profile.drafts), step_tokens=profile.step_tokens)
        self._token_events = token_events
        self._on_end = on_end
        # Noise of step times needs no cryptographic randomness.
        self._random = random.Random(seed)  # noqa: S311
        self._now_s = start_s
        self._free_s = start_s
        """Model time when the last stretch (consecutive steps with the same batch) ended."""
        self._arrivals: deque[EngineSequence] = deque()
        """Submitted requests that arrived after the start of the last step, or will arrive, in order of
        arrival."""
        self._waiting: deque[EngineSequence] = deque()
        self._batch = RunningBatch(kv_blocks=profile.kv_blocks, block_tokens=profile.block_tokens)
        self._stretch: Stretch | None = None
        self._requests: dict[str, EngineSequence] = {}
        self._outbox: list[EngineEvent] = []
        self._held: Gauges | None = None

    @property
    def now_s(self) -> float:
        """Model time of the last `advance` or `cancel`, in seconds."""
        return self._now_s

    @property
    def running(self) -> int:
        """Number of requests in the batch."""
        return len(self._batch.running)

    @property
    def waiting(self) -> int:
        """Number of requests that have arrived but are not in the batch."""
        arrived = sum(sequence.arrived_s <= self._now_s for sequence in self._arrivals)
        return len(self._waiting) + arrived

    @property
    def kv_usage(self) -> float:
        """Share of the KV blocks in use, 0 to 1."""
        return self._batch.used_blocks / self._batch.pool.capacity

    @property
    def gauges(self) -> Gauges:
        """The values of the gauges on the metrics page."""
        return self._held or Gauges(self.running, self.waiting, self.kv_usage)

    @property
    def in_flight(self) -> tuple[str, ...]:
        """Ids of the requests that have not ended, oldest submission first."""
        return tuple(self._requests)

    def submit(self, request: SimulatedRequest, at: float) -> None:
        """Schedule the arrival of a request at the model time `at`.

        Raises:
            ValueError: the time has passed, the id is in use, or the request could never fit into the model's
                context or the KV cache.
        """
        if at < self._now_s:
            raise ValueError(f"arrival at {at} s, but {self._now_s} s have passed")
        if request.request_id in self._requests:
            raise ValueError(f"request {request.request_id} is already there")
        if request.prompt_tokens < 1 or request.output_tokens < 1:
            raise ValueError("a request has at least one prompt token and one output token")
        tokens = request.prompt_tokens + request.output_tokens
        if tokens > min(self.profile.max_model_len, self.profile.kv_capacity_tokens):
            raise ValueError(f"{tokens} tokens are more than the model's context or its KV cache")
        sequence = EngineSequence(request, at)
        self._requests[request.request_id] = sequence
        insort(self._arrivals, sequence, key=attrgetter("arrived_s"))
        self._cut_for_arrival()

    def cancel(self, request_id: str, at: float) -> bool:
        """Abort a request at the model time `at`; return True.

        Return False if the request has ended or is unknown.

        Raises:
            ValueError: the time has passed.
        """
        if at < self._now_s:
            raise ValueError(f"cancelled at {at} s, but {self._now_s} s have passed")
        self._run_to(at)
        sequence = self._requests.get(request_id)
        if sequence is None:
            return False
        if request_id in self._batch.running:
            sequence.generated = self._batch.generated_tokens(sequence)
            self._batch.remove(sequence)
            stretch = self._stretch
            if stretch is not None:
                # The step under way keeps its duration; what the request made in it is dropped, and a prompt
                # that left the batch counts as not computed.
                stretch.steps = min(stretch.steps, stretch.done + 1)
        else:
            queue = self._waiting if sequence in self._waiting else self._arrivals
            queue.remove(sequence)
            # An arrival that is already known would have had to wait behind it.
            self._cut_for_arrival()
        self._end(sequence, at, EndReason.ABORT)
        return True

    def hold(self, at: float, shown: Gauges | None, power_w: Sequence[float | None]) -> None:
        """Do no more steps from the model time `at` on, and show the gauges `shown`; with None, go on again.

        The step under way is completed. `power_w` is the power of each machine from `at` on in watts, None
        for idle; the last value is repeated for further machines.
        """
        self._run_to(at)
        if self._stretch is not None:
            self._stretch.end_during_step(at)
        self._held, self._free_s = shown, max(self._free_s, at + self.profile.wake_s)
        for index, node in enumerate(self.nodes):
            node.draw(at, power_w[min(index, len(power_w) - 1)])

    def advance(self, until_s: float) -> list[EngineEvent]:
        """Move the engine to the model time `until_s`.

        Return the events since the last call of this method, in order of time.
        """
        if until_s > self._now_s:
            self._run_to(until_s)
        events, self._outbox = self._outbox, []
        return events

    def next_event_at(self) -> float | None:
        """Return the model time of the next event; None if there is none until a request is submitted."""
        if self._outbox:
            return self._outbox[0].at
        stretch = self._stretch
        if stretch is not None:
            return stretch.end_s(stretch.done + 1 if self._token_events else stretch.steps)
        return self._next_start_s()

    def _run_to(self, until_s: float) -> None:
        """Do all steps that end by the model time `until_s`, planning stretches as they are needed."""
        while True:
            stretch = self._stretch
            if stretch is None:
                start_s = self._next_start_s()
                if start_s is None or start_s > until_s:
                    break
                self._plan_stretch(start_s)
                continue
            steps = min(stretch.steps, stretch.ended_by(until_s))
            if steps > stretch.done:
                self._complete_steps(stretch, steps)
            if steps < stretch.steps:
                break
            self._finish(stretch)
        self._now_s = until_s

    def _next_start_s(self) -> float | None:
        """Return when the next stretch begins; None while there is no request, or the engine is held up."""
        if self._held is not None:
            return None
        if self._batch.running or self._waiting:
            return self._free_s
        if not self._arrivals:
            return None
        arrived_s = self._arrivals[0].arrived_s
        if arrived_s < self._free_s:
            return self._free_s
        return arrived_s + self.profile.wake_s

    def _plan_stretch(self, start_s: float) -> None:
        """Plan the next stretch (consecutive steps with the same batch), which starts at `start_s`.

        Requests that have arrived move to the queue. If there is no block for the next token of a request,
        requests are preempted. Then queued requests are admitted.
        """
        batch = self._batch
        while self._arrivals and self._arrivals[0].arrived_s < start_s:
            self._waiting.append(self._arrivals.popleft())
        while not batch.reserve_step():
            self._preempt()
        budget = self.profile.max_num_batched_tokens - len(batch.in_phase(State.DECODE))
        prefilling = self._schedule_prompts(budget, start_s)
        self._stretch = stretch = self._begin_stretch(start_s, prefilling)
        if not prefilling:
            stretch.steps = self._steps_with_same_batch(stretch.first_s)
        self._cut_for_arrival()

    def _begin_stretch(self, start_s: float, prefilling: list[tuple[EngineSequence, int]]) -> Stretch:
        """Return a stretch of one step with its duration, and let the machines draw its power from its start.

        The time of a step with drafts is divided among the tokens that it generates for a request.
        """
        profile, decoding = self.profile, len(self._batch.in_phase(State.DECODE))
        # Attention: each token of a part with those before it, half of the part on average.
        pairs = sum(tokens * (sequence.computed - tokens / 2) for sequence, tokens in prefilling)
        rows = decoding + sum(tokens for _, tokens in prefilling)
        drafts = 0 if prefilling else len(profile.drafts)
        rows_with_drafts = rows * (1 + drafts)
        padded = profile.padded_rows(rows_with_drafts)
        clock_mhz = min([node.load_clock_mhz(start_s) for node in self.nodes])
        noise = max(0.5, self._random.gauss(1.0, profile.jitter)) if profile.jitter else 1.0
        link_s = profile.link_seconds(rows_with_drafts)
        gpu_s = profile.cost.step_s(padded, self._batch.context_tokens, pairs, clock_mhz) + link_s
        gpu_s += drafts * profile.draft_token_s
        step_s = noise * (gpu_s + profile.host_seconds(rows_with_drafts))
        # While the nodes wait for their link, for the share link_s / gpu_s, they draw WAITING_W.
        power_w = step_power_w(padded) + (WAITING_W - step_power_w(padded)) * link_s / gpu_s
        for node in self.nodes:
            node.draw(start_s, power_w, noise * gpu_s / step_s)
        tokens = profile.step_tokens if drafts else 1.0
        growth_s = noise * profile.cost.growth_s(decoding, clock_mhz)
        return Stretch(start_s, step_s / tokens, growth_s / tokens, 1, rows, prefilling, drafts=drafts)

    def _schedule_prompts(self, budget: int, now_s: float) -> list[tuple[EngineSequence, int]]:
        """Return (request, tokens) of the prompts to compute in the next step, `budget` tokens at most.

        Queued requests are admitted while there is a place and blocks for them.
        """
        batch = self._batch
        prompt_parts: list[tuple[EngineSequence, int]] = []

        def compute(sequence: EngineSequence) -> None:
            nonlocal budget
            tokens = min(budget, sequence.length - sequence.computed)
            batch.record_computed(sequence, tokens)
            prompt_parts.append((sequence, tokens))
            budget -= tokens

        for sequence in batch.in_phase(State.PREFILL):
            if budget:
                compute(sequence)
        # In a step with a preemption `admit` refuses: the preempted request heads the queue, and some of the
        # blocks that it needs again are gone. So no check for that is needed here.
        while self._waiting and budget and self.running < self.profile.max_num_seqs:
            if not batch.admit(self._waiting[0]):
                break
            sequence = self._waiting.popleft()
            if sequence.admitted_s is None:
                sequence.admitted_s = now_s
                sequence.cached_tokens = sequence.computed
                self.tally.prefix_queries += sequence.request.prompt_tokens
                self.tally.prefix_hits += sequence.cached_tokens
            compute(sequence)
        return prompt_parts

    def _steps_with_same_batch(self, first_s: float) -> int:
        """Return for how many steps a decoding batch stays the same and the available KV blocks suffice.

        `first_s` is the duration of the first step in seconds.
        """
        batch = self._batch
        steps = min(batch.steps_to_finish(), max(1, int(LONGEST_STRETCH_S / first_s)))
        # A step is already reserved.
        while steps > 1 and batch.blocks_for(steps - 1) > batch.pool.available:
            steps -= 1
        return steps

    def _cut_for_arrival(self) -> None:
        """Shorten the current stretch so that the next request to arrive can join the batch in the next step.

        The stretch (consecutive steps with the same batch) stays as it is if no request can join.
        """
        stretch = self._stretch
        open_to_all = not self._waiting and self.running < self.profile.max_num_seqs
        if stretch is not None and self._arrivals and open_to_all:
            stretch.end_during_step(self._arrivals[0].arrived_s)

    def _preempt(self) -> None:
        """Move the newest request of the batch to the front of the queue; its blocks become free."""
        sequence = next(reversed(self._batch.running.values()))
        self._batch.remove(sequence)
        sequence.phase = State.WAITING
        sequence.preemptions += 1
        self._waiting.appendleft(sequence)
        self.tally.preemptions += 1

    def _complete_steps(self, stretch: Stretch, steps: int) -> None:
        """Count the steps of a stretch up to its step `steps`, with an event for each token."""
        batch, tally, done_steps = self._batch, self.tally, stretch.done
        decoding = batch.in_phase(State.DECODE)
        if self._token_events:
            for step in range(done_steps + 1, steps + 1):
                at = stretch.end_s(step)
                self._outbox += [AnswerRead(sequence.request.request_id, at) for sequence in decoding]
        count = steps - done_steps
        tally.generation_tokens += count * len(decoding)
        if stretch.drafts:
            tally.drafted[stretch.rows] += count  # with drafts a step of a stretch is one token
        else:
            tally.step_rows[stretch.rows] += count
        tally.busy_s += stretch.end_s(steps) - stretch.end_s(done_steps)
        stretch.done = steps
        batch.complete_steps(count, under_way=steps < stretch.steps)

    def _finish(self, stretch: Stretch) -> None:
        """End the current stretch (consecutive steps with the same batch) after its last step.

        Requests that are complete end, and requests whose prompt is computed begin to decode.
        """
        self._stretch = None
        self._free_s = now_s = stretch.end_s(stretch.steps)
        for sequence in self._batch.finished():
            sequence.last_token_s = now_s
            self._batch.remove(sequence)
            self._end(sequence, now_s, sequence.request.reason)
        self._end_prompts((sequence for sequence, _ in stretch.prefilling), now_s)
        if not self._batch.running and not self._waiting and self._held is None:
            for node in self.nodes:
                node.draw(now_s, None)

    def _end_prompts(self, sequences: Iterable[EngineSequence], now_s: float) -> None:
        for sequence in sequences:
            if sequence.computed < sequence.length:
                continue
            request = sequence.request
            sequence.generated += 1
            self.tally.generation_tokens += 1
            is_first = sequence.first_token_s is None
            if is_first:
                sequence.first_token_s = now_s
                self.tally.prompt_tokens += request.prompt_tokens
                self.tally.prompt_tokens_cached += sequence.cached_tokens
            if is_first or self._token_events:
                self._outbox.append(AnswerRead(request.request_id, now_s))
            if sequence.generated < request.output_tokens:
                self._batch.begin_decoding(sequence)
            else:
                sequence.last_token_s = now_s
                self._batch.remove(sequence)
                self._end(sequence, now_s, request.reason)

    def _end(self, sequence: EngineSequence, at: float, reason: EndReason) -> None:
        request = sequence.request
        sequence.phase, sequence.ended_s, sequence.reason = State.ENDED, at, reason
        del self._requests[request.request_id]
        self.tally.ended[reason] += 1
        self._outbox.append(
            RequestEnded(
                request.request_id,
                at,
                reason,
                RequestFailure(FailureKind.HTTP, ENGINE_ERROR, at) if reason is EndReason.ERROR else None,
                prompt_tokens=request.prompt_tokens,
                cached_tokens=sequence.cached_tokens,
                generated_tokens=sequence.generated,
            )
        )
        if self._on_end is not None:
            self._on_end(sequence)


# The settings of a simulated engine, and the duration of its steps.


class StepCost(Struct, frozen=True):
    """The duration of an engine step, computed from the work in the step.

    A row is a token that the step computes: one of a prompt, or the newest token of a decoding request. At
    the reference clock, the duration is the sum of four parts:

        weights    min(weights_one_s x rows ^ weights_exponent, weights_all_s)
        rows       rows x row_s
        context    tokens in the contexts of all decoding requests x context_token_s
        attention  pairs of a prompt token and an earlier token x attention_pair_s

    The first part grows with the rows because more rows choose more experts, until all experts are read.
    """

    weights_one_s: float
    """Seconds to read the weights that a step with a single row (token) needs."""
    weights_exponent: float
    """Exponent with which the time to read weights grows with the rows: 0 for a dense model, 1 for experts
    that no two rows share."""
    weights_all_s: float
    """Seconds to read the weights of all experts, which is the most that a step can read."""
    row_s: float
    """Seconds to compute one row (token); for long prompts, this is most of a step's duration."""
    context_token_s: float
    """Seconds to read the KV cache of one context token of a decoding request."""
    attention_pair_s: float
    """Seconds for attention between a token of a prompt and an earlier token: the quadratic part of
    prefill."""
    one_row_bytes: float | None = None
    """Bytes of weights that a step with a single row reads, where starting kernels takes a part of
    `weights_one_s`; None: as many as can be read in that time."""
    read_bytes_per_s: float = 265e9
    """Bytes of weights read per second, in what more rows take beyond `weights_one_s`."""
    weights_clock_share: float = 0.3
    """Share of the reading time, 0 to 1, that scales with the SM clock; computing time scales with it
    completely."""

    def step_s(self, rows: int, context_tokens: int, pairs: float, clock_mhz: float) -> float:
        """Return the duration in seconds of a step that computes `rows` tokens at an SM clock of `clock_mhz`.

        `context_tokens` is the context of all decoding requests together, in tokens. `pairs` is the number of
        token pairs for which the attention of prompts is computed.
        """
        slower = REFERENCE_CLOCK_MHZ / clock_mhz
        reading_s = self._weights_s(rows) + context_tokens * self.context_token_s
        computing_s = rows * self.row_s + pairs * self.attention_pair_s
        return reading_s * self._reading_factor(slower) + computing_s * slower

    def _weights_s(self, rows: int) -> float:
        """Return the seconds in which a step of `rows` tokens reads weights; with more rows, more experts."""
        weights_s: float = min(self.weights_one_s * rows**self.weights_exponent, self.weights_all_s)
        return weights_s

    def read_bytes(self, rows: int) -> float:
        """Return the bytes of weights that one GPU reads in a step that computes `rows` tokens."""
        one_row_bytes = self.one_row_bytes
        idle_s = 0.0 if one_row_bytes is None else self.weights_one_s - one_row_bytes / self.read_bytes_per_s
        return (self._weights_s(rows) - idle_s) * self.read_bytes_per_s

    def growth_s(self, requests: int, clock_mhz: float) -> float:
        """Return the seconds by which a decode step takes longer than the step before it.

        The reason is that the context of each of the `requests` requests has grown by a token.
        """
        return requests * self.context_token_s * self._reading_factor(REFERENCE_CLOCK_MHZ / clock_mhz)

    def _reading_factor(self, slower: float) -> float:
        """Return by which factor reading takes longer at a clock that is slower by the factor `slower`."""
        return 1.0 + self.weights_clock_share * (slower - 1.0)


class EngineProfile(Struct, frozen=True):
    """The settings of a simulated engine, named as in vLLM, and its speed."""

    name: str
    model: str
    cost: StepCost
    max_model_len: int
    max_num_seqs: int
    """Most requests that run at once."""
    max_num_batched_tokens: int
    """Most tokens that one step computes; a longer prompt is computed in several steps."""
    kv_blocks: int
    block_tokens: int = 16
    capture_sizes: tuple[int, ...] = ()
    """Batch sizes for which the engine has a CUDA graph, ascending; other batches are padded to the next
    size.

    A batch above the largest size is not padded. With `enforce_eager` there are no such sizes, and nothing is
    padded.
    """
    nodes: int = 1
    """Machines that share each step (tensor parallel)."""
    wake_s: float = 0.02
    """Seconds from a request's arrival at an idle engine to its first step: HTTP, tokenizing, scheduling.

    Requests that arrive meanwhile are included in that first step.
    """
    jitter: float = 0.0
    """Relative standard deviation of step times; the deviation is drawn anew whenever the batch changes."""
    link_bytes_per_row: int = 0
    """Bytes that each node sends to the others for one row (token computed)."""
    link_bytes_per_s: float | None = None
    """Bytes per second that the link between the nodes carries; None: it never delays a step."""
    host_s: float = 0.0
    """Seconds of each step in which the GPU waits for the CPU, such as scheduling and sampling."""
    host_row_s: float = 0.0
    """The same for each row (token computed), such as grammars."""
    drafts: tuple[float, ...] = ()
    """Share of drafts whose token is accepted, by position in the draft; () without speculative decoding."""
    draft_token_s: float = 0.0
    """Seconds of a step for each token of a draft: a pass of the draft model."""

    def host_seconds(self, rows: int) -> float:
        """Return the seconds of a step with `rows` tokens in which the GPU waits for one CPU core."""
        return self.host_s + rows * self.host_row_s

    @property
    def step_tokens(self) -> float:
        """Mean number of tokens that a step generates for a request, with those accepted of a draft."""
        return 1.0 + sum(self.drafts)

    def link_seconds(self, rows: int) -> float:
        """Return the seconds of a step with `rows` tokens in which the nodes wait for their link."""
        return rows * self.link_bytes_per_row / self.link_bytes_per_s if self.link_bytes_per_s else 0.0

    @property
    def kv_capacity_tokens(self) -> int:
        """Number of tokens for which the KV cache has space."""
        return self.kv_blocks * self.block_tokens

    def padded_rows(self, rows: int) -> int:
        """Return the number of rows that a step computes for `rows` tokens.

        This is the next larger or equal size in `capture_sizes`, or `rows` if no size is large enough.
        """
        sizes = self.capture_sizes
        at = bisect_left(sizes, rows)
        return sizes[at] if at < len(sizes) else rows


# Consecutive steps of a simulated engine with an unchanged batch; all times are computed by a formula.


class Stretch(Struct, eq=False):
    """Consecutive steps with the same batch: one step that computes prompts, or any number of decode steps.

    Step k (from 1) takes `first_s + (k - 1) x growth_s`, so the time of its end is a polynomial in k. All
    times are computed from the start of the stretch and never accumulated. So they do not depend on how often
    they are computed.
    """

    start_s: float
    first_s: float
    growth_s: float
    steps: int
    rows: int
    """Tokens computed in each step, without padding."""
    prefilling: list[tuple[EngineSequence, int]] = field(default_factory=list)
    """Pairs (request, number of tokens) for the requests whose prompt is computed in this step."""
    done: int = 0
    drafts: int = 0
    """Tokens in each draft of a step; with drafts a step here is the time of a token."""

    def end_s(self, step: int) -> float:
        """Return the model time at which step `step` (from 1) ends."""
        return self.start_s + step * self.first_s + self.growth_s * (step * (step - 1) / 2)

    def ended_by(self, at: float) -> int:
        """Return how many steps would have ended by the model time `at` if the stretch had no last step."""
        elapsed_s = at - self.start_s
        if elapsed_s <= 0:
            return 0
        if self.growth_s > 0:
            slope = self.first_s - self.growth_s / 2
            root = math.sqrt(slope * slope + 2 * self.growth_s * elapsed_s)
            # Of the root's two forms, the one that does not subtract nearly equal numbers.
            steps = int(2 * elapsed_s / (root + slope) if slope > 0 else (root - slope) / self.growth_s)
        else:
            steps = int(elapsed_s / self.first_s)
        while self.end_s(steps + 1) <= at:
            steps += 1
        while steps and self.end_s(steps) > at:
            steps -= 1
        return steps

    def end_during_step(self, at: float) -> None:
        """Shorten the stretch so that it ends with the step that runs at the model time `at`."""
        if self.end_s(self.steps) > at:
            self.steps = min(self.steps, max(self.done, self.ended_by(at)) + 1)


# The gauges that a simulated engine shows on its metrics page.


class Gauges(Struct, frozen=True):
    """Values of an engine's gauges; they stand still while something holds the engine up."""

    running: int
    waiting: int
    kv_usage: float
    """Share of the KV blocks held by requests, 0 to 1."""
    deferred: int = 0
    """Waiting requests that wait for the KV cache of another server; part of `waiting`."""
    asleep: bool = False
    """Whether the engine is in sleep mode."""


# Counters of a simulated engine since its start, as vLLM exposes them.


class EngineTally(Struct, eq=False):
    """Counters of one simulated engine, which never decrease."""

    prompt_tokens: int = 0
    """Prompt tokens of requests that have generated their first token."""
    prompt_tokens_cached: int = 0
    """The part of `prompt_tokens` that came from the prefix cache."""
    generation_tokens: int = 0
    preemptions: int = 0
    prefix_queries: int = 0
    """Number of tokens for which the prefix cache was searched."""
    prefix_hits: int = 0
    ended: Counter[EndReason] = field(default_factory=Counter)
    step_rows: Counter[int] = field(default_factory=Counter)
    """Number of steps without drafts, by the number of rows (tokens) computed in a step."""
    drafted: Counter[int] = field(default_factory=Counter)
    """Number of tokens that steps with drafts generated for each request, by the number of requests."""
    draft_length: int = 0
    step_tokens: float = 1.0
    """Tokens that a step with drafts generates for a request, on average."""
    busy_s: float = 0.0
    """Seconds that the engine has spent in steps."""

    @property
    def steps(self) -> int:
        """Number of engine steps so far."""
        return self.work.total()

    @property
    def work(self) -> Counter[int]:
        """Number of steps by the number of rows (tokens) computed in a step, drafts included."""
        work = Counter(self.step_rows)
        for requests, tokens in self.drafted.items():
            work[requests * (1 + self.draft_length)] += int(tokens / self.step_tokens)
        return work

    @property
    def drafts(self) -> int:
        """Number of drafts checked so far: one for each request of a step with drafts."""
        return sum(requests * int(tokens / self.step_tokens) for requests, tokens in self.drafted.items())

    @property
    def rows(self) -> int:
        """Number of rows (tokens) computed so far, without padding."""
        return sum(rows * steps for rows, steps in self.work.items())
