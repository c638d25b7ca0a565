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

import argparse
import dataclasses
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from msgspec.structs import replace
from stuck_pages import NOISE, PAGES, Noise

from sparktop.demo import faults
from sparktop.demo.engine_page import Ledger
from sparktop.demo.faults import Bursts, Fault, FaultRun
from sparktop.demo.machine import SLOW_MHZ, Machine, MachineHeat, MachineReader
from sparktop.engines import read_page
from sparktop.model.engine import EngineSample
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.load import Level, LoadMode
from sparktop.model.progress import Progress
from sparktop.model.targets import BackendTarget, NodeTarget, Watch
from sparktop.simulation.calibration import CLUSTER_TP2, GX10_PATCHED, LONG_CONTEXT, SOLO
from sparktop.simulation.engine import Engine, EngineEvent, EngineProfile, SimulatedRequest
from sparktop.store import SourceKey, Store
from stage.clients import ClosedLoop, DirectWay, VirtualTime

HERE = Path(__file__).resolve().parent
MARKS = ("<!-- stuck.py: begin -->", "<!-- stuck.py: end -->")
FAMILY_MARKS = ("<!-- stuck.py families: begin -->", "<!-- stuck.py families: end -->")
START = datetime(2026, 1, 1, tzinfo=UTC)
WITHIN_S = 130.0
"""Seconds within which a hang must be named if the machines are watched."""
BLIND_WITHIN_S = 910.0
_AFTER_S = 40.0
_KEY = SourceKey.backend("engine")


@dataclass(frozen=True, slots=True)
class Phase:
    """One kind of run."""

    name: str
    draw: Callable[[random.Random], Fault | None]
    """Function that draws the fault of a run; returns None for a phase without one."""
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
    return replace(faults.HUGE_STEP, power_w=(dice.uniform(36, 70),))


def _capturing(dice: random.Random) -> Fault:
    bursts = Bursts(dice.uniform(25, 60), dice.uniform(0.5, 3.0), dice.uniform(3.5, 9.0))
    return replace(faults.CAPTURE, bursts=bursts)


def _same(fault: Fault) -> Callable[[random.Random], Fault]:
    return lambda _: fault


def _none(_: random.Random) -> None:
    return None


_SLOW = replace(LONG_CONTEXT, cost=replace(LONG_CONTEXT.cost, row_s=0.0029), max_num_batched_tokens=4096)
_TIGHT = replace(SOLO, kv_blocks=420)
PHASES = (
    Phase("hang A: ranks diverge (TP=2)", partial(_spinning, faults.HANG_A), (CLUSTER_TP2,), hangs=True),
    Phase("hang B: a kernel never ends", partial(_spinning, faults.HANG_B), hangs=True),
    Phase("hang: blocked, GPU at rest", _same(faults.BLOCKED), hangs=True),
    Phase("dead rank (TP=2)", partial(_spinning, faults.DEAD_RANK), (CLUSTER_TP2,), hangs=True),
    Phase(
        "hang, only metrics",
        partial(_spinning, faults.HANG_B),
        (SOLO,),
        (930, 990),
        hangs=True,
        watched=False,
    ),
    Phase("one huge step", _working),
    Phase("a kernel is compiled", _same(faults.COMPILE)),
    Phase("graph capture after a start", _capturing, from_start=True),
    Phase("asleep", _same(faults.SLEEP)),
    Phase("swap storm", _same(faults.SWAP_STORM)),
    Phase("remote KV wait", _same(faults.KV_WAIT)),
    Phase("CPU-bound step", _same(faults.CPU_STEP)),
    Phase("long prefill, chunked", _none, (_SLOW,), load=(1, 2), prompt_tokens=110_000),
    Phase("long prefill, only metrics", _none, (_SLOW,), load=(1, 2), prompt_tokens=110_000, watched=False),
    Phase("slow clock (PD fault)", _none, clock_mhz=SLOW_MHZ),
    Phase("KV-starved", _none, (_TIGHT,), load=(24, 64)),
    Phase("clients gone", _none, rests=True),
    Phase("plain load", _none, (SOLO, GX10_PATCHED, CLUSTER_TP2)),
)

_FAMILY_PHASES = {
    "hang B: a kernel never ends": (130.0, 170.0),
    "hang: blocked, GPU at rest": (130.0, 170.0),
    "one huge step": (130.0, 170.0),
    "a kernel is compiled": (130.0, 170.0),
    "graph capture after a start": (130.0, 170.0),
    "long prefill, chunked": (130.0, 170.0),
    "clients gone": (130.0, 170.0),
    "plain load": (60.0, 90.0),
    "asleep": (130.0, 170.0),
    "remote KV wait": (130.0, 170.0),
}
"""Length in seconds of the phases that families are tried with."""
_ONLY_VLLM = frozenset({"asleep", "remote KV wait"})
"""Phases that only vLLM's page shows."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The verdicts on one run."""

    phase: str
    seed: int
    hangs: bool
    watched: bool
    suspected_s: float | None
    """Seconds from the start of the phase to the first *stuck?* or *stuck*; None if there was none."""
    stuck_s: float | None
    words: frozenset[Progress | None]
    """Verdicts during the phase."""
    ended: bool
    """Whether the verdict was gone soon after the phase."""

    @property
    def right(self) -> bool:
        """Whether a hang was named in time, or a healthy phase never suspected; and the verdict ended."""
        if not self.hangs:
            return self.suspected_s is None and self.ended
        limit_s = WITHIN_S if self.watched else BLIND_WITHIN_S
        return self.stuck_s is not None and self.stuck_s <= limit_s and self.ended


class _Way(DirectWay):
    """Sends to the engine, and counts arrivals in its ledger."""

    def __init__(self, time: VirtualTime, ledger: Ledger) -> None:
        super().__init__(time)
        self._ledger = ledger

    def send(self, request: SimulatedRequest) -> None:
        """Submit the request to the engine."""
        self._ledger.arrived(request.request_id, self._time.now_s, request.output_tokens)
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
        self._heats = [MachineHeat(ambient_c=27.0, at=0.0) for _ in range(profile.nodes)]
        for heat in self._heats:
            heat.pinned_mhz = phase.clock_mhz
        self._ledger = Ledger(profile.max_model_len)
        engine = Engine(
            profile, nodes=self._heats, seed=seed, on_end=self._ledger.finished, token_events=False
        )
        self.time = VirtualTime([engine])
        self.time.listeners.append(self._hear)
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

    def _hear(self, engine: int, event: EngineEvent) -> None:
        del engine
        self._ledger.hear(event)

    def _reader(self, heat: MachineHeat, rank: int, of: int) -> MachineReader:
        reader = MachineReader(
            heat, Machine(rank=rank if of > 1 else None), name=f"m{rank}", clock=lambda: self._at
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

        level = Level("x", count, phase.prompt_tokens, phase.output_tokens, LoadMode.STEADY, duration_s=1e9)
        way = _Way(self.time, self._ledger)
        loop = ClosedLoop(self.time, way, level, seed=dice.random().hex(), lengths=lengths, stagger_s=3.0)
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
                asked = key.name in self.store.progress.nodes_asked
                sample = reader.look()
                self.store.accept(key, sample if asked else dataclasses.replace(sample, processes=None))

    def _read(self) -> EngineSample:
        """Return the current page, which is built again only if something has changed."""
        self._noise.advance(self._at)
        tally, noise = self._engine.tally, dataclasses.replace(self._noise)
        shape = (self._engine.gauges, tally.steps, tally.generation_tokens, noise)
        if shape != self._shape or self._sample is None:
            self._shape = shape
            self._sample = read_page(self._page(self._engine, self._ledger, self._noise), at=self._at)
        return replace(self._sample, at=self._at)

    def befall(self, fault: Fault | None, for_s: float) -> None:
        """Start the phase now, and end it after `for_s` seconds."""
        if self.phase.rests:
            self._loop.rest(for_s)
        if fault is not None:
            hold = partial(self.time.hold, 0)
            later = self._later
            run = FaultRun(fault, lambda: self._engine.gauges, self._readers, hold=hold, later=later)
            run.begin()
            later(for_s, run.end)

    def _later(self, after_s: float, call: Callable[[], object]) -> None:
        self.time.call_at(self.time.now_s + after_s, call)


def play(phase: Phase, seed: int, engine: str = "vLLM", noise: str = "none") -> Outcome:
    """Play one run with the page of an engine and a kind of noise; return the verdicts."""
    run = Run(phase, seed, engine, noise)
    dice = random.Random(f"lengths/{phase.name}/{seed}")  # noqa: S311 - no secret
    before_s = 0.0 if phase.from_start else dice.uniform(20, 70)
    early = set(run.play(before_s))
    lasts_s = round(dice.uniform(*phase.lasts_s))
    run.befall(phase.draw(dice), lasts_s)
    words = [*run.play(lasts_s)]
    after = [*run.play(_AFTER_S)]
    bad = {Progress.SUSPECT, Progress.STUCK}

    def first(of: set[Progress]) -> float | None:
        return next((float(at) for at, word in enumerate(words, 1) if word in of), None)

    return Outcome(
        phase.name,
        seed,
        phase.hangs,
        phase.watched,
        first(bad) if not early & bad else 0.0,
        first({Progress.STUCK}),
        frozenset(words),
        not bad & set(after[5:]),
    )


def _play(place: int, seed: int) -> Outcome:
    return play(PHASES[place], seed)


def _play_family(engine: str, noise: str, phase: str, seed: int) -> Outcome:
    lasts_s = _FAMILY_PHASES[phase]
    return play(
        dataclasses.replace(next(one for one in PHASES if one.name == phase), lasts_s=lasts_s),
        seed,
        engine,
        noise,
    )


def families(runs: int, seed: int, workers: int = 2) -> dict[tuple[str, str], list[Outcome]]:
    """Play `runs` runs of each phase for each engine and kind of noise; return them by (engine, noise)."""
    jobs = [
        (engine, noise, phase, seed + index)
        for engine, (kind, _) in PAGES.items()
        for noise in NOISE
        for phase in _FAMILY_PHASES
        for index in range(runs)
        if kind == "vllm" or phase not in _ONLY_VLLM
    ]
    found: dict[tuple[str, str], list[Outcome]] = {}
    with ProcessPoolExecutor(workers) as pool:
        for job, outcome in zip(
            jobs, pool.map(_play_family, *zip(*jobs, strict=True), chunksize=1), strict=True
        ):
            found.setdefault(job[:2], []).append(outcome)
    return found


def family_table(found: Mapping[tuple[str, str], Sequence[Outcome]]) -> list[str]:
    """Return the latest *stuck* of hangs, and the healthy runs suspected, of each family, as Markdown."""
    lines = [
        f"| engine | {' | '.join(NOISE)} | healthy runs suspected |",
        f"|---|{'---:|' * (len(NOISE) + 1)}",
    ]
    for engine in PAGES:
        cells = []
        for noise in NOISE:
            hung = [one for one in found[engine, noise] if one.hangs]
            late = [one.stuck_s for one in hung if one.stuck_s is not None]
            cells.append(_latest(late) if len(late) == len(hung) else f"{len(hung) - len(late)} never")
        well = [one for noise in NOISE for one in found[engine, noise] if not one.hangs]
        wrong = sum(not one.right for one in well)
        lines.append(f"| {engine} | {' | '.join(cells)} | {wrong} of {len(well)} |")
    every = [one for several in found.values() for one in several]
    return [*lines, "", f"{sum(one.right for one in every)} of {len(every)} runs were right."]


def outcomes(runs: int, seed: int, workers: int = 2) -> list[Outcome]:
    """Play `runs` runs of each phase, from `seed` on."""
    jobs = [(place, seed + index) for place in range(len(PHASES)) for index in range(runs)]
    with ProcessPoolExecutor(workers) as pool:
        return list(pool.map(_play, *zip(*jobs, strict=True), chunksize=2))


def table(found: Sequence[Outcome]) -> list[str]:
    """Return the confusion table as lines of Markdown."""
    lines = [
        "| phase | runs | never | *stuck?* only | *stuck* | first *stuck?* | first *stuck* | right |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for phase in PHASES:
        mine = [one for one in found if one.phase == phase.name]
        stuck = [one.stuck_s for one in mine if one.stuck_s is not None]
        suspected = [one.suspected_s for one in mine if one.suspected_s is not None]
        counts = (len(mine), len(mine) - len(suspected), len(suspected) - len(stuck), len(stuck))
        cells = [*map(str, counts), _latest(suspected), _latest(stuck)]
        right = sum(one.right for one in mine)
        lines.append(f"| {phase.name} | {' | '.join(cells)} | {right} of {len(mine)} |")
    hung = [one for one in found if one.hangs]
    well = [one for one in found if not one.hangs]
    named, false = sum(one.right for one in hung), sum(not one.right for one in well)
    said = (
        f"{named} of {len(hung)} hangs were named in time and ended; {false} of {len(well)} healthy runs were"
    )
    return [*lines, "", f"{said} suspected."]


def _latest(seconds: Sequence[float]) -> str:
    return f"≤ {max(seconds):.0f} s" if seconds else "–"


def write(lines: Sequence[str], page: Path, marks: tuple[str, str] = MARKS) -> None:
    """Write the table between its marks in a page."""
    text = page.read_text(encoding="utf-8")
    head, _, rest = text.partition(marks[0])
    _, _, tail = rest.partition(marks[1])
    page.write_text("\n".join((f"{head}{marks[0]}", "", *lines, "", f"{marks[1]}{tail}")), encoding="utf-8")


def main() -> int:
    """Play the runs and print the table; return 1 if a run was judged wrongly."""
    parser = argparse.ArgumentParser(description="Hangs and what only looks like one, in virtual time.")
    parser.add_argument("--runs", type=int, default=14, help="runs of each phase")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--families", action="store_true", help="each engine with each kind of HTTP noise")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    if asked.families:
        by_family = families(asked.runs, asked.seed)
        found = [one for several in by_family.values() for one in several]
        lines = family_table(by_family)
        for family, several in by_family.items():
            for one in several:
                if not one.right:
                    print(f"WRONG: {family}: {one}", file=sys.stderr)
    else:
        found = outcomes(asked.runs, asked.seed)
        lines = table(found)
        for one in found:
            if not one.right:
                print(f"WRONG: {one}", file=sys.stderr)
    print("\n".join(lines))
    if asked.write:
        write(lines, HERE / "README.md", FAMILY_MARKS if asked.families else MARKS)
    return int(any(not one.right for one in found))


if __name__ == "__main__":
    sys.exit(main())
