"""Check that hanging engines are judged *stuck*, and engines that only seem to hang are not.

Each run has a seed and takes place in virtual time. It is one simulated engine with its machines, a closed
loop of clients of a random size, and one phase of a random length: a fault of `sparktop demo`, a load or a
state. The store polls the engine's page each second and its machines every other second, as the monitor does,
and judges each second. In some runs polls fail, or the machines are not watched. Parameters of faults are
drawn for each run: the power of a spinning GPU from 13 to 27 W, that of a working step from 36 to 70 W, and
all lengths.

    named       first *stuck?* and first *stuck* after the start of the phase, the latest of all runs
    false       runs with a healthy phase that had the verdict *stuck?* or *stuck* at any time

With --families, a second table is made: hangs and healthy phases with the page of each engine and with each
kind of HTTP noise (clients that give up, invalid requests, retries, health checks and further monitors), as
the worst of each family.

usage: stuck.py [--runs N] [--seed N] [--write] [--families]

With --write, the table is written to benchmarks/README.md.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

import tables
from msgspec import Struct
from msgspec.structs import replace

from sparktop.demo.engine_page import EngineHistograms, engine_page
from sparktop.demo.machine import SLOW_MHZ, MachineReader, SimulatedMachine
from sparktop.demo.scenario import FAULTS, Fault, FaultRun
from sparktop.engines import read_page
from sparktop.model.engine import EngineSample
from sparktop.model.event import Progress
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.load import Level, concurrency_point
from sparktop.model.targets import BackendTarget, NodeTarget, Watch
from sparktop.simulation.calibration import CLUSTER_TP2, GX10_PATCHED, LONG_CONTEXT, SOLO
from sparktop.simulation.engine import Engine, EngineProfile, SimulatedRequest
from sparktop.simulation.thermal import NodeThermal
from sparktop.store import SourceKey, Store
from stage.clients import ClosedLoop, DirectDestination, VirtualTime

START = datetime(2026, 1, 1, tzinfo=UTC)
RUNS, FAMILY_RUNS = 14, 2
"""Runs of each phase; of families a run takes half a second of one core, and one each is 290."""
WITHIN_S = 130.0
"""Seconds within which a hang must be named if the machines are watched."""
BLIND_WITHIN_S = 910.0
_AFTER_S = 40.0
_KEY = SourceKey.backend("engine")


NOISE = ("none", "aborts", "invalid requests", "retries", "health checks and polls")
_INTERVALS_S = (3.0, 20.0, 45.0)


class Noise(Struct):
    """What clients and monitors have made the HTTP side count so far."""

    kind: str
    dice: random.Random
    aborted: int = 0
    invalid: int = 0
    arrived: int = 0
    polls: int = 0
    away: int = 0
    """Requests that a client has given up at this second, and sends again in the next."""
    next_s: float | None = None

    def advance(self, at: float) -> None:
        """Count what happened up to `at` seconds."""
        self.polls += self.kind == "health checks and polls"
        self.away = 0
        if self.next_s is None:
            self.next_s = at + self.dice.uniform(0, 5)
        if at < self.next_s or self.kind in {"none", "health checks and polls"}:
            return
        self.next_s = at + self.dice.expovariate(1 / self.dice.choice(_INTERVALS_S))
        self.aborted += self.kind in {"aborts", "retries"}
        self.invalid += self.kind == "invalid requests"
        self.arrived += 1
        self.away = int(self.kind == "retries")


def _vllm(engine: Engine, histograms: EngineHistograms, noise: Noise) -> bytes:
    page = engine_page([(engine, histograms)], 1.0)
    # An abort counts with its reason and its time; an image of a new request is looked up when it arrives.
    more = f"""
vllm:request_success_total{{engine="0",finished_reason="abort",model_name="m"}} {noise.aborted}
vllm:request_success_total{{engine="0",finished_reason="error",model_name="m"}} {noise.invalid}
vllm:mm_cache_queries_total{{engine="0",model_name="m"}} {noise.arrived}
vllm:e2e_request_latency_seconds_bucket{{engine="0",le="+Inf",model_name="m"}} {noise.aborted}
vllm:e2e_request_latency_seconds_count{{engine="0",model_name="m"}} {noise.aborted}
vllm:e2e_request_latency_seconds_sum{{engine="0",model_name="m"}} {30 * noise.aborted}
http_requests_total{{handler="/v1/chat/completions",method="POST",status="4xx"}} {noise.invalid}
http_requests_total{{handler="/v1/models",method="GET",status="2xx"}} {noise.polls}
"""
    return page + more.encode()


_E2E, _PROMPT = "e2e_request_latency_seconds", "request_prompt_tokens"
_OUTPUT = "request_generation_tokens"
"""Histograms of the simulated engine by their names on vLLM's page."""


def _sglang(engine: Engine, histograms: EngineHistograms, noise: Noise) -> bytes:
    now, tally, labels = engine.gauges, engine.tally, 'model_name="m",tp_rank="0",pp_rank="0"'
    ended = sum(histograms.ended.values())
    return f"""sglang:num_running_reqs{{{labels}}} {now.running}
sglang:num_queue_reqs{{{labels}}} {now.waiting}
sglang:token_usage{{{labels}}} {now.kv_usage}
sglang:realtime_tokens_total{{mode="decode",{labels}}} {tally.generation_tokens}
sglang:realtime_tokens_total{{mode="prefill_compute",{labels}}} {tally.rows - tally.generation_tokens}
sglang:num_requests_total{{model_name="m"}} {ended}
sglang:num_aborted_requests_total{{model_name="m"}} {noise.aborted}
sglang:http_requests_total{{endpoint="/v1/chat/completions",method="POST"}} {noise.arrived + noise.polls}
sglang:http_responses_total{{endpoint="/v1/chat/completions",status_code="400"}} {noise.invalid}
""".encode()


def _sglang_old(engine: Engine, histograms: EngineHistograms, noise: Noise) -> bytes:
    now, tally = engine.gauges, engine.tally
    tokens = histograms.by_name[_OUTPUT].sum or bool(tally.generation_tokens)
    return f"""sglang:num_running_reqs{{model_name="m"}} {now.running}
sglang:num_queue_reqs{{model_name="m"}} {now.waiting}
sglang:token_usage{{model_name="m"}} {now.kv_usage}
sglang:prompt_tokens_total{{model_name="m"}} {histograms.by_name[_PROMPT].sum}
sglang:generation_tokens_total{{model_name="m"}} {tokens}
sglang:num_requests_total{{model_name="m"}} {histograms.by_name[_E2E].cumulative[-1]}
sglang:num_aborted_requests_total{{model_name="m"}} {noise.aborted}
""".encode()


def _llamacpp(engine: Engine, histograms: EngineHistograms, noise: Noise) -> bytes:
    now, tally = engine.gauges, engine.tally
    del noise  # it counts nothing by itself
    return f"""llamacpp:requests_processing {now.running}
llamacpp:requests_deferred {now.waiting}
llamacpp:prompt_tokens_total {tally.prompt_tokens}
llamacpp:tokens_predicted_total {histograms.by_name[_OUTPUT].sum}
llamacpp:tokens_predicted_seconds_total {histograms.by_name["request_decode_time_seconds"].sum}
llamacpp:n_decode_total {tally.steps}
""".encode()


def _tgi(engine: Engine, histograms: EngineHistograms, noise: Noise) -> bytes:
    now, tally = engine.gauges, engine.tally
    done = histograms.by_name[_E2E].cumulative[-1]
    received = tally.prompt_tokens + 200 * noise.arrived
    return f"""tgi_batch_current_size {max(0, now.running - noise.away)}
tgi_queue_size {now.waiting}
tgi_request_success {done}
tgi_request_failure{{err="validation"}} {noise.invalid}
tgi_request_failure{{err="generation"}} {noise.aborted}
tgi_request_count {done + noise.arrived}
tgi_batch_inference_count{{method="decode"}} {tally.steps}
tgi_request_duration_sum {histograms.by_name[_E2E].sum}
tgi_request_duration_count {done}
tgi_request_input_length_sum {received}
tgi_request_input_length_count {noise.arrived}
tgi_request_generated_tokens_sum {histograms.by_name[_OUTPUT].sum}
tgi_request_generated_tokens_count {done}
""".encode()


def _trtllm(engine: Engine, histograms: EngineHistograms, noise: Noise) -> bytes:
    now, tally = engine.gauges, engine.tally
    done = histograms.by_name[_E2E].cumulative[-1]
    latency = tally.busy_s % 0.1 + 0.01
    return f"""trtllm_num_requests_running{{model_name="m"}} {now.running}
trtllm_num_requests_waiting{{model_name="m"}} {now.waiting}
trtllm_kv_cache_utilization{{model_name="m"}} {now.kv_usage}
trtllm_iteration_latency_seconds{{model_name="m"}} {latency}
trtllm_prompt_tokens_total{{model_name="m"}} {histograms.by_name[_PROMPT].sum}
trtllm_generation_tokens_total{{model_name="m"}} {histograms.by_name[_OUTPUT].sum}
trtllm_request_success_total{{finished_reason="length",model_name="m"}} {done}
trtllm_request_success_total{{finished_reason="cancelled",model_name="m"}} {noise.aborted}
trtllm_request_error_total{{http_code="400",error_type="invalid",model_name="m"}} {noise.invalid}
trtllm_e2e_request_latency_seconds_bucket{{le="+Inf",model_name="m"}} {done + noise.aborted}
trtllm_e2e_request_latency_seconds_count{{model_name="m"}} {done + noise.aborted}
trtllm_e2e_request_latency_seconds_sum{{model_name="m"}} {histograms.by_name[_E2E].sum + 30 * noise.aborted}
""".encode()


def _triton(engine: Engine, histograms: EngineHistograms, noise: Noise) -> bytes:
    now, tally, model = engine.gauges, engine.tally, 'model="tensorrt_llm",version="1"'
    done = histograms.by_name[_E2E].cumulative[-1]
    spent_us = 1e6 * histograms.by_name[_E2E].sum
    return f"""nv_inference_request_success{{{model}}} {done}
nv_inference_request_failure{{reason="CANCELED",{model}}} {noise.aborted}
nv_inference_request_failure{{reason="REJECTED",{model}}} {noise.invalid}
nv_inference_request_duration_us{{{model}}} {spent_us + 3e7 * noise.aborted:.0f}
nv_trt_llm_request_metrics{{request_type="scheduled",{model}}} {now.running}
nv_trt_llm_request_metrics{{request_type="waiting",{model}}} {now.waiting}
nv_trt_llm_kv_cache_block_metrics{{kv_cache_block_type="fraction",{model}}} {now.kv_usage}
nv_trt_llm_general_metrics{{general_type="iteration_counter",{model}}} {tally.steps}
nv_llm_input_token_len_sum{{{model}}} {tally.prompt_tokens + 200 * noise.arrived}
nv_llm_output_token_len_sum{{{model}}} {histograms.by_name[_OUTPUT].sum}
""".encode()


PAGES: Mapping[str, tuple[str, Callable[[Engine, EngineHistograms, Noise], bytes]]] = {
    "vLLM": ("vllm", _vllm),
    "SGLang": ("sglang", _sglang),
    "SGLang, older": ("sglang", _sglang_old),
    "llama.cpp": ("llamacpp", _llamacpp),
    "TGI": ("tgi", _tgi),
    "TensorRT-LLM": ("trtllm", _trtllm),
    "Triton": ("triton", _triton),
}
"""By the engine's name in the table: its name in a configuration, and its page."""


class Phase(Struct, frozen=True):
    """One kind of run."""

    name: str
    fault: Fault | Callable[[random.Random], Fault] | None
    """The fault of each run, or a function that draws it; None for a phase without one."""
    profiles: tuple[EngineProfile, ...] = (SOLO, GX10_PATCHED)
    lasts_s: tuple[float, float] = (150.0, 500.0)
    hangs: bool = False
    watched: bool = True
    """Whether the machines are watched."""
    load: tuple[int, int] = (1, 40)
    prompt_tokens: int = 256
    output_tokens: int = 120
    clock_mhz: float | None = None
    rests: bool = False
    """Whether the clients send nothing during the phase."""
    from_start: bool = False
    """Whether the phase begins with the engine's process."""


def _spinning(fault: Fault, dice: random.Random) -> Fault:
    return replace(
        fault, power_w=tuple(None if one is None else dice.uniform(13, 27) for one in fault.power_w)
    )


def _working(dice: random.Random) -> Fault:
    return replace(FAULTS["huge-step"], power_w=(dice.uniform(36, 70),))


def _capturing(dice: random.Random) -> Fault:
    bursts = (dice.uniform(25, 60), dice.uniform(0.5, 3.0), dice.uniform(3.5, 9.0))
    return replace(FAULTS["graph-capture"], bursts=bursts)


_SLOW = replace(LONG_CONTEXT, cost=replace(LONG_CONTEXT.cost, row_s=0.0029), max_num_batched_tokens=4096)
_TIGHT = replace(SOLO, kv_blocks=420)
PHASES = (
    Phase("hang A: ranks diverge (TP=2)", partial(_spinning, FAULTS["hang-a"]), (CLUSTER_TP2,), hangs=True),
    Phase("hang B: a kernel never ends", partial(_spinning, FAULTS["hang-b"]), hangs=True),
    Phase("hang: blocked, GPU at rest", FAULTS["hang-blocked"], hangs=True),
    Phase("dead rank (TP=2)", partial(_spinning, FAULTS["dead-rank"]), (CLUSTER_TP2,), hangs=True),
    Phase(
        "hang, only metrics",
        partial(_spinning, FAULTS["hang-b"]),
        (SOLO,),
        (930, 990),
        hangs=True,
        watched=False,
    ),
    Phase("one huge step", _working),
    Phase("a kernel is compiled", FAULTS["compile"]),
    Phase("graph capture after a start", _capturing, from_start=True),
    Phase("asleep", FAULTS["sleep"]),
    Phase("swap storm", FAULTS["swap-storm"]),
    Phase("remote KV wait", FAULTS["kv-wait"]),
    Phase("CPU-bound step", FAULTS["cpu-step"]),
    Phase("long prefill, chunked", None, (_SLOW,), load=(1, 2), prompt_tokens=110_000),
    Phase("long prefill, only metrics", None, (_SLOW,), load=(1, 2), prompt_tokens=110_000, watched=False),
    Phase("slow clock (PD fault)", None, clock_mhz=SLOW_MHZ),
    Phase("KV-starved", None, (_TIGHT,), load=(24, 64)),
    Phase("clients gone", None, rests=True),
    Phase("plain load", None, (SOLO, GX10_PATCHED, CLUSTER_TP2)),
)

_ONLY_VLLM = ("asleep", "remote KV wait")
"""Phases that only vLLM's page shows."""
_FAMILY_PHASES = (
    *("hang B: a kernel never ends", "hang: blocked, GPU at rest", "one huge step", "a kernel is compiled"),
    *("graph capture after a start", "long prefill, chunked", "clients gone", "plain load", *_ONLY_VLLM),
)
"""The phases that families are tried with."""
_FAMILY_LASTS_S = (130.0, 170.0)


class Outcome(Struct, frozen=True):
    """The verdicts on one run."""

    phase: Phase
    seed: int
    suspected_s: float | None
    """Seconds from the start of the phase to the first *stuck?* or *stuck*; None if there was none."""
    stuck_s: float | None
    ended: bool
    """Whether the verdict was gone soon after the phase."""

    @property
    def right(self) -> bool:
        """Whether a hang was named in time, or a healthy phase never suspected; and the verdict ended."""
        if not self.phase.hangs:
            return self.suspected_s is None and self.ended
        limit_s = WITHIN_S if self.phase.watched else BLIND_WITHIN_S
        return self.stuck_s is not None and self.stuck_s <= limit_s and self.ended


class _Way(DirectDestination):
    """Sends to the engine, and counts arrivals in its ledger."""

    def __init__(self, time: VirtualTime, histograms: EngineHistograms) -> None:
        super().__init__(time)
        self._histograms = histograms

    def send(self, request: SimulatedRequest) -> None:
        """Submit the request to the engine."""
        self._histograms.count_arrival(request.request_id, self._time.now_s)
        super().send(request)


class Run:
    """One engine, its machines and clients, and the store that watches them."""

    def __init__(self, phase: Phase, seed: int, engine_name: str = "vLLM", noise: str = "none") -> None:
        """Prepare the run; nothing has happened yet."""
        self.phase = phase
        self._at = 0.0
        kind, self._page = PAGES[engine_name]
        self._noise = Noise(noise, random.Random(f"noise/{noise}/{seed}"))  # noqa: S311 - no secret
        self._dice = random.Random(f"stuck/{phase.name}/{seed}")  # noqa: S311 - no secret
        profile = self._dice.choice(phase.profiles)
        self._heats = [NodeThermal(ambient_c=27.0, at=0.0) for _ in range(profile.nodes)]
        for heat in self._heats:
            heat.pinned_mhz = phase.clock_mhz
        self._histograms = EngineHistograms(profile.max_model_len)
        engine = Engine(
            profile, nodes=self._heats, seed=seed, on_end=self._histograms.count_end, token_events=False
        )
        self.time = VirtualTime([engine])
        self.time.listeners.append(lambda _, event: self._histograms.count_event(event))
        self._engine = engine
        self._readers = [self._reader(heat, rank, profile.nodes) for rank, heat in enumerate(self._heats)]
        names = tuple(f"m{rank}" for rank in range(profile.nodes)) if phase.watched else ()
        self._nodes = [SourceKey.node(name) for name in names]
        watch = Watch(
            nodes=tuple(NodeTarget(name) for name in names),
            backends=(BackendTarget("engine", "http://e:8000", engine=kind, nodes=names),),
        )
        self.store = Store(
            watch, clock=lambda: self._at, now=lambda: START + timedelta(seconds=self._at), simulated=True
        )
        self._lost = self._dice.choice((0.0, 0.0, 0.03))
        """Share of the polls that fail."""
        self._sample: EngineSample | None = None
        self._shape: object = None
        self._loop = self._clients()

    def _reader(self, heat: NodeThermal, rank: int, of: int) -> MachineReader:
        reader = MachineReader(
            heat, SimulatedMachine(rank=rank if of > 1 else None), name=f"m{rank}", clock=lambda: self._at
        )
        reader.attach(self._engine)
        reader.show_processes = True
        return reader

    def _clients(self) -> ClosedLoop:
        phase, dice = self.phase, self._dice
        count = dice.randint(*phase.load)

        def lengths(own: random.Random) -> tuple[int, int]:
            factor = own.uniform(0.6, 1.1)
            return round(phase.prompt_tokens * factor), max(
                2, round(phase.output_tokens * own.uniform(0.5, 1.5))
            )

        level = Level("x", concurrency_point(count), phase.prompt_tokens, phase.output_tokens)
        way = _Way(self.time, self._histograms)
        loop = ClosedLoop(
            self.time, way, level, steady_s=1e9, seed=dice.random().hex(), lengths=lengths, stagger_s=3.0
        )
        loop.start()
        return loop

    def play(self, seconds: float) -> Iterator[Progress | None]:
        """Advance second by second; yield the verdict after each."""
        end_s = self._at + seconds
        while self._at < end_s:
            self._at += 1.0
            self.time.run(self._at)
            self._poll()
            self.store.judge()
            progress = self.store.snapshot().backends[0].progress
            yield None if progress is None else progress.word

    def _poll(self) -> None:
        if self._dice.random() < self._lost:
            self.store.accept(_KEY, Failure(FailureKind.TIMEOUT, "no answer", self._at))
        else:
            self.store.accept(_KEY, self._read())
        if round(self._at) % 2 == 0:
            for key, reader in zip(self._nodes, self._readers, strict=False):
                asked = key.name in self.store.standstills.nodes_asked
                sample = reader.sample()
                self.store.accept(key, sample if asked else replace(sample, processes=None))

    def _read(self) -> EngineSample:
        """Return the current page, which is built again only if something has changed."""
        self._noise.advance(self._at)
        tally, noise = self._engine.tally, replace(self._noise)
        shape = (self._engine.gauges, tally.steps, tally.generation_tokens, noise)
        if shape != self._shape or self._sample is None:
            self._shape = shape
            self._sample = read_page(self._page(self._engine, self._histograms, self._noise), at=self._at)
        return replace(self._sample, at=self._at)

    def befall(self, dice: random.Random, for_s: float) -> None:
        """Start the phase now, and end it after `for_s` seconds; `dice` draws its fault."""
        fault = self.phase.fault
        if callable(fault):
            fault = fault(dice)
        if self.phase.rests:
            self._loop.rest(for_s)
        if fault is not None:
            hold = partial(self.time.hold, 0)

            def later(after_s: float, call: Callable[[], object]) -> None:
                self.time.call_at(self.time.now_s + after_s, call)

            run = FaultRun(fault, lambda: self._engine.gauges, self._readers, hold=hold, later=later)
            run.begin()
            later(for_s, run.end)


def play(phase: Phase, seed: int, engine: str = "vLLM", noise: str = "none") -> Outcome:
    """Play one run with the page of an engine and a kind of noise; return the verdicts."""
    run = Run(phase, seed, engine, noise)
    dice = random.Random(f"lengths/{phase.name}/{seed}")  # noqa: S311 - no secret
    before_s = 0.0 if phase.from_start else dice.uniform(20, 70)
    early = set(run.play(before_s))
    lasts_s = round(dice.uniform(*phase.lasts_s))
    run.befall(dice, lasts_s)
    words = [*run.play(lasts_s)]
    after = [*run.play(_AFTER_S)]
    bad = {Progress.SUSPECT, Progress.STUCK}

    def first(of: set[Progress]) -> float | None:
        return next((float(at) for at, word in enumerate(words, 1) if word in of), None)

    return Outcome(
        phase,
        seed,
        first(bad) if not early & bad else 0.0,
        first({Progress.STUCK}),
        not bad & set(after[5:]),
    )


Job = tuple[str, str, str, int, tuple[float, float] | None]
"""(engine, noise, name of the phase, seed, its shortest and longest length if not those of the phase)."""


def play_job(job: Job) -> Outcome:
    """Play a run in a process of its own; the outcome's phase is without the fault, which cannot be sent."""
    engine, noise, name, seed, lasts_s = job
    phase = next(phase for phase in PHASES if phase.name == name)
    outcome = play(phase if lasts_s is None else replace(phase, lasts_s=lasts_s), seed, engine, noise)
    return replace(outcome, phase=replace(phase, fault=None))


def family_table(found: Sequence[tuple[Job, Outcome]]) -> list[str]:
    """Return the latest *stuck* of hangs, and the healthy runs suspected, of each family, as Markdown."""
    rows = []
    for engine in PAGES:
        cells = []
        for noise in NOISE:
            hung = [one for job, one in found if job[:2] == (engine, noise) and one.phase.hangs]
            late = [one.stuck_s for one in hung if one.stuck_s is not None]
            cells.append(_latest(late) if len(late) == len(hung) else f"{len(hung) - len(late)} never")
        well = [one for job, one in found if job[0] == engine and not one.phase.hangs]
        rows.append((engine, *cells, f"{sum(not one.right for one in well)} of {len(well)}"))
    lines = tables.table(("engine", *NOISE, "healthy runs suspected"), rows)
    return [*lines, "", f"{sum(one.right for _, one in found)} of {len(found)} runs were right."]


def table(found: Sequence[Outcome]) -> list[str]:
    """Return the confusion table as lines of Markdown."""
    rows = []
    for phase in PHASES:
        mine = [one for one in found if one.phase.name == phase.name]
        stuck = [one.stuck_s for one in mine if one.stuck_s is not None]
        suspected = [one.suspected_s for one in mine if one.suspected_s is not None]
        counts = (len(mine), len(mine) - len(suspected), len(suspected) - len(stuck), len(stuck))
        right = f"{sum(one.right for one in mine)} of {len(mine)}"
        rows.append((phase.name, *counts, _latest(suspected), _latest(stuck), right))
    hung, well = ([one for one in found if one.phase.hangs is hangs] for hangs in (True, False))
    named, false = sum(one.right for one in hung), sum(not one.right for one in well)
    said = f"{named} of {len(hung)} hangs were named in time and ended"
    heads = ("phase", "runs", "never", "*stuck?* only", "*stuck*", "first *stuck?*", "first *stuck*", "right")
    return [*tables.table(heads, rows), "", f"{said}; {false} of {len(well)} healthy runs were suspected."]


def _latest(seconds: Sequence[float]) -> str:
    return f"≤ {max(seconds):.0f} s" if seconds else "–"


def main() -> int:
    """Play the runs and print the table; return 1 if a run was judged wrongly."""
    parser = tables.options(__doc__, runs=0, seed=1)
    parser.add_argument("--families", action="store_true", help="each engine with each kind of HTTP noise")
    options = parser.parse_args()
    runs = options.runs or (FAMILY_RUNS if options.families else RUNS)
    seeds = range(options.seed, options.seed + runs)
    jobs: list[Job] = [("vLLM", "none", phase.name, seed, None) for phase in PHASES for seed in seeds]
    if options.families:
        jobs = [
            (engine, noise, phase, seed, _FAMILY_LASTS_S)
            for engine, (kind, _) in PAGES.items()
            for noise in NOISE
            for phase in _FAMILY_PHASES
            for seed in seeds
            if kind == "vllm" or phase not in _ONLY_VLLM
        ]
    found = list(zip(jobs, tables.in_processes(play_job, jobs), strict=True))
    for job, outcome in found:
        if not outcome.right:
            print(f"WRONG: {job}: {outcome}", file=sys.stderr)
    if options.families:
        tables.publish("stuck.py families", family_table(found), write=options.write)
    else:
        tables.publish("stuck.py", table([outcome for _, outcome in found]), write=options.write)
    return int(not all(outcome.right for _, outcome in found))


if __name__ == "__main__":
    sys.exit(main())
