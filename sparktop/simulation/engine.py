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

import random
from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable
from collections.abc import Sequence as SequenceOf
from itertools import islice
from operator import attrgetter

from sparktop.model.failure import Failure, FailureKind
from sparktop.model.load import EndReason, FirstToken, RequestEnded, Tokens
from sparktop.simulation.batch import Batch
from sparktop.simulation.gauges import Gauges
from sparktop.simulation.profile import EngineProfile
from sparktop.simulation.request import Phase, RequestTimeline, Sequence, SimulatedRequest
from sparktop.simulation.stretch import Stretch
from sparktop.simulation.tally import EngineTally
from sparktop.simulation.thermal import NodeThermal, step_power_w

LONGEST_STRETCH_S = 2.0
"""Longest time in seconds until the clock rate is updated: heat has a time constant of 75 s."""

ENGINE_ERROR = "the simulated engine broke the request off"

EngineEvent = FirstToken | Tokens | RequestEnded
"""Events of an engine's requests; their start is reported by the sender."""


class Engine:
    """A simulated inference engine with its queue, batch and counters.

    `advance` moves it through model time.
    """

    def __init__(
        self,
        profile: EngineProfile,
        *,
        nodes: SequenceOf[NodeThermal] | None = None,
        seed: int | str = 0,
        start_s: float = 0.0,
        token_events: bool = True,
        on_end: Callable[[RequestTimeline], None] | None = None,
    ) -> None:
        """Start at model time `start_s` without requests; `nodes` are the machines that the engine runs on.

        `seed` fixes the noise of step times. If `token_events` is false, only the first token of a request is
        reported as an event, so that a thousand engines fit into a process. `on_end` receives the timeline of
        each request when the request ends.
        """
        self.profile = profile
        self.nodes = (
            tuple(nodes)
            if nodes is not None
            else tuple(NodeThermal(at=start_s) for _ in range(profile.nodes))
        )
        """The machines that the engine runs on; the slowest sets the pace."""
        self.tally = EngineTally()
        self._token_events = token_events
        self._on_end = on_end
        # Noise of step times needs no cryptographic randomness.
        self._random = random.Random(seed)  # noqa: S311
        self._now_s = start_s
        self._free_s = start_s
        """Model time when the last stretch (consecutive steps with the same batch) ended."""
        self._arrivals: deque[Sequence] = deque()
        """Submitted requests that arrived after the start of the last step, or will arrive, in order of
        arrival."""
        self._waiting: deque[Sequence] = deque()
        self._batch = Batch(kv_blocks=profile.kv_blocks, block_tokens=profile.block_tokens)
        self._stretch: Stretch | None = None
        self._requests: dict[str, Sequence] = {}
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
        sequence = Sequence(request, at)
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
            sequence.generated = self._batch.made(sequence)
            self._batch.leave(sequence)
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

    def hold(self, at: float, shown: Gauges | None, power_w: SequenceOf[float | None]) -> None:
        """Do no more steps from the model time `at` on, and show the gauges `shown`; with None, go on again.

        The step under way is completed. `power_w` is the power of each machine from `at` on in watts, None
        for idle; the last value is repeated for further machines.
        """
        self._run_to(at)
        if self._stretch is not None:
            self._stretch.cut(at)
        self._held, self._free_s = shown, max(self._free_s, at + self.profile.wake_s)
        for place, node in enumerate(self.nodes):
            node.draw(at, power_w[min(place, len(power_w) - 1)])

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
        while True:
            stretch = self._stretch
            if stretch is None:
                start_s = self._next_start_s()
                if start_s is None or start_s > until_s:
                    break
                self._plan(start_s)
                continue
            steps = min(stretch.steps, stretch.ended_by(until_s))
            if steps > stretch.done:
                self._do_steps(stretch, steps)
            if steps < stretch.steps:
                break
            self._finish(stretch)
        self._now_s = until_s

    def _next_start_s(self) -> float | None:
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

    def _plan(self, start_s: float) -> None:
        """Plan the next stretch (consecutive steps with the same batch), which starts at `start_s`.

        Requests that have arrived move to the queue. If there is no block for the next token of a request,
        requests are preempted. Then queued requests are admitted.
        """
        batch, profile = self._batch, self.profile
        while self._arrivals and self._arrivals[0].arrived_s < start_s:
            self._waiting.append(self._arrivals.popleft())
        while not batch.reserve_step():
            self._preempt()
        rows = batch.decoding
        prefilling = self._schedule_prompts(profile.max_num_batched_tokens - rows, start_s)
        pairs = 0.0
        for sequence, tokens in prefilling:
            pairs += tokens * (sequence.computed - tokens / 2)
            rows += tokens
        padded = profile.padded(rows)
        clock_mhz = min([node.load_clock_mhz(start_s) for node in self.nodes])
        noise = max(0.5, self._random.gauss(1.0, profile.jitter)) if profile.jitter else 1.0
        gpu_s = profile.cost.step_s(padded, batch.context_tokens, pairs, clock_mhz) + profile.link_of(rows)
        first_s = noise * (gpu_s + profile.host_of(rows))
        growth_s = noise * profile.cost.growth_s(batch.decoding, clock_mhz)
        stretch = Stretch(start_s, first_s, growth_s, 1, rows, padded - rows, prefilling)
        if not prefilling:
            stretch.steps = self._steps_alike(first_s)
        self._stretch = stretch
        self._cut_for_arrival()
        for node in self.nodes:
            node.draw(start_s, step_power_w(padded), noise * gpu_s / first_s)

    def _schedule_prompts(self, budget: int, now_s: float) -> list[tuple[Sequence, int]]:
        batch = self._batch
        parts: list[tuple[Sequence, int]] = []

        def compute(sequence: Sequence) -> None:
            nonlocal budget
            tokens = min(budget, sequence.length - sequence.computed)
            batch.compute(sequence, tokens)
            parts.append((sequence, tokens))
            budget -= tokens

        # Decoding requests come first in the batch, so that the loop visits only those in prefill, mostly
        # none.
        unfinished = len(batch.running) - batch.decoding
        for sequence in reversed(list(islice(reversed(batch.running.values()), unfinished))):
            if budget:
                compute(sequence)
        # After a preemption no request is admitted: the preempted one heads the queue, and some of the blocks
        # that it needs again are gone.
        while self._waiting and budget and self.running < self.profile.max_num_seqs:
            if not batch.admit(self._waiting[0]):
                break
            sequence = self._waiting.popleft()
            self._admitted(sequence, now_s)
            compute(sequence)
        return parts

    def _admitted(self, sequence: Sequence, now_s: float) -> None:
        if sequence.admitted_s is None:
            sequence.admitted_s = now_s
            sequence.cached_tokens = sequence.computed
            self.tally.prefix_queries += sequence.request.prompt_tokens
            self.tally.prefix_hits += sequence.cached_tokens

    def _steps_alike(self, first_s: float) -> int:
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
            stretch.cut(self._arrivals[0].arrived_s)

    def _preempt(self) -> None:
        sequence = next(reversed(self._batch.running.values()))
        self._batch.leave(sequence)
        sequence.phase = Phase.WAITING
        sequence.preemptions += 1
        self._waiting.appendleft(sequence)
        self.tally.preemptions += 1

    def _do_steps(self, stretch: Stretch, steps: int) -> None:
        batch, tally, done = self._batch, self.tally, stretch.done
        if self._token_events and batch.decoding:
            decoding = [name for name, sequence in batch.running.items() if sequence.phase is Phase.DECODE]
            for step in range(done + 1, steps + 1):
                at = stretch.end_s(step)
                self._outbox.extend([Tokens(name, at) for name in decoding])
        count = steps - done
        tally.generation_tokens += count * batch.decoding
        tally.step_rows[stretch.rows] += count
        tally.padded_rows += count * stretch.padding
        tally.busy_s += stretch.end_s(steps) - stretch.end_s(done)
        stretch.done = steps
        batch.step(count, under_way=steps < stretch.steps)

    def _finish(self, stretch: Stretch) -> None:
        """End the current stretch (consecutive steps with the same batch) after its last step.

        Requests that are complete end, and requests whose prompt is computed begin to decode.
        """
        self._stretch = None
        self._free_s = now_s = stretch.end_s(stretch.steps)
        for sequence in self._batch.finished():
            if sequence.phase is Phase.ENDED:
                # Preempted and resumed with the same last step, it is in the batch's list of ends twice.
                continue
            sequence.last_token_s = now_s
            self._batch.leave(sequence)
            self._end(sequence, now_s, sequence.request.reason)
        self._end_prompts((sequence for sequence, _ in stretch.prefilling), now_s)
        if not self._batch.running and not self._waiting and self._held is None:
            for node in self.nodes:
                node.draw(now_s, None)

    def _end_prompts(self, sequences: Iterable[Sequence], now_s: float) -> None:
        for sequence in sequences:
            if sequence.computed < sequence.length:
                continue
            request = sequence.request
            sequence.generated += 1
            self.tally.generation_tokens += 1
            if sequence.first_token_s is None:
                sequence.first_token_s = now_s
                self.tally.prompt_tokens += request.prompt_tokens
                self.tally.prompt_tokens_cached += sequence.cached_tokens
                self._outbox.append(FirstToken(request.request_id, now_s))
            elif self._token_events:
                self._outbox.append(Tokens(request.request_id, now_s))
            if sequence.generated < request.output_tokens:
                self._batch.decode(sequence)
            else:
                sequence.last_token_s = now_s
                self._batch.leave(sequence)
                self._end(sequence, now_s, request.reason)

    def _end(self, sequence: Sequence, at: float, reason: EndReason) -> None:
        request = sequence.request
        sequence.phase = Phase.ENDED
        del self._requests[request.request_id]
        self.tally.ended[reason] += 1
        self._outbox.append(
            RequestEnded(
                request.request_id,
                at,
                reason,
                Failure(FailureKind.HTTP, ENGINE_ERROR, at) if reason is EndReason.ERROR else None,
                prompt_tokens=request.prompt_tokens,
                cached_tokens=sequence.cached_tokens,
                generated_tokens=sequence.generated,
            )
        )
        if self._on_end is not None:
            self._on_end(sequence.timeline(at, reason))
