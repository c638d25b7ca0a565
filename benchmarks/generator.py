"""Measure the load generator's errors and cost on a server of known truth, beside llama-benchy's.

The truth server streams by an absolute schedule and records the time of each write (`truth_server`). It has
one core, the client that loads it has another. Each round makes every load once, sparktop's and
llama-benchy's in turns; the table has medians over the rounds. Other work on the machine affects every
figure: judge a missed goal by the load average above the table.
With --realtime (as root), server and clients have priority over everything else on their cores, for a machine
with other work.

usage: generator.py [--runs 3] [--only NAME…] [--realtime] [--without-llama-benchy] [--peers FOLDER] [--write]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import tables
from truth import (
    Generator,
    Load,
    LoadFailedError,
    TruthProcess,
    decode_tps,
    generator_on,
    go_first,
    output_tps,
    sustained_tps,
    ttft_s,
)
from truth_server import Batching, FixedPace

PEERS = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sparktop-benchmarks"
USUAL_DESCRIPTORS = 1024
"""The usual soft limit of file descriptors in a login shell."""

PACE, TOKENS = FixedPace(first_token_s=0.3, token_gap_s=0.02), 128
SLOW_PACE, SLOW_TOKENS = FixedPace(first_token_s=0.3, token_gap_s=0.04), 64
"""For more than 64 streams: 6,400 tokens per second at 256, which llama-benchy's client can still read."""
BURSTS = (1, 4, 16, 64, 256)
BATCHING = Batching(slots=16, step_s=0.02, prefill_s=0.03)
"""A run of 16 requests with 128 tokens has an overall rate 23 % below that with all 16 decoding."""
STEADY_S = 8.0
FAST_STREAMS, FAST_PACE = 205, FixedPace(first_token_s=0.3, token_gap_s=0.01)
FAST_TOKENS = 400
FASTEST_EVENTS_PER_S = 20_000
COST_US = 12.0
COSTS = {
    1: (FixedPace(first_token_s=0.3, token_gap_s=0.01), 800),
    64: (FixedPace(first_token_s=0.3, token_gap_s=0.01), 400),
    256: (FixedPace(first_token_s=0.3, token_gap_s=0.02), 200),
}
"""Pace and tokens by concurrency. A single stream wakes the process for each event, so it has no goal."""
KEEPS_UP_MS = 50.0
"""Largest lag at the end of four seconds with which a client keeps up."""
CANCELLED, CANCELLED_PACE, CANCELLED_TOKENS = 256, FixedPace(first_token_s=0.2, token_gap_s=0.04), 500


VERSION = "0.4.0"
_MAKE_MODEL = Path(__file__).resolve().parents[1] / "scripts" / "make_model.py"
_INSTALL_S = 600.0
_RUN_S = 180.0


@dataclass(frozen=True, slots=True)
class BenchyResult:
    """The figures that llama-benchy reported for one level."""

    ttft_ms: float
    """Mean of `e2e_ttft`, its time from the call to the first token."""
    tg_tps: float
    """Mean of `tg_throughput`, its headline."""
    cpu_s: float
    """CPU seconds of the whole program."""
    rounds: int
    """Number of bursts measured; unless disabled, one more came before them as a warm-up."""


class LlamaBenchy:
    """An installed llama-benchy."""

    def __init__(self, folder: Path, *, realtime: bool = False) -> None:
        """Install llama-benchy below `folder` if it is missing; `realtime` runs it at real-time priority.

        Raises:
            OSError, subprocess.SubprocessError: the installation failed.
        """
        environment = folder / f"llama-benchy-{VERSION}"
        self._program = environment / "bin" / "llama-benchy"
        self._tokenizer = folder / "tokenizer"
        self._realtime = realtime
        python = str(environment / "bin" / "python")
        if not self._program.exists():
            print(f"installing llama-benchy {VERSION} into {environment}", file=sys.stderr)
            venv.create(environment, with_pip=True)
            _run([python, "-m", "pip", "install", "--quiet", f"llama-benchy=={VERSION}"])
        if not (self._tokenizer / "tokenizer.json").exists():
            _run([python, str(_MAKE_MODEL), "tiny", str(self._tokenizer)])

    def burst(
        self, url: str, concurrency: int, tokens: int, *, core: int, runs: int, warm_up: bool = True
    ) -> BenchyResult:
        """Run llama-benchy on one core: `runs` bursts of `concurrency` requests.

        Raises:
            subprocess.SubprocessError: llama-benchy failed or took too long.
        """
        options = ["--concurrency", str(concurrency), "--tg", str(tokens), "--runs", str(runs)]
        options += ["--pp", "64", "--exact-tg", "--latency-mode", "none", "--skip-coherence"]
        if not warm_up:
            options += ["--no-warmup", "--no-adapt-prompt"]
        with tempfile.TemporaryDirectory() as home:
            result = Path(home) / "result.json"
            options += ["--save-result", str(result), "--format", "json"]
            options += ["--base-url", f"{url}/v1", "--model", "truth", "--tokenizer", str(self._tokenizer)]
            options += ["--book-url", f"{url}/book.txt"]
            before = _children_cpu_s()
            _run([str(self._program), *options], core=core, home=home, realtime=self._realtime)
            cpu_s = _children_cpu_s() - before
            (level,) = json.loads(result.read_text(encoding="utf-8"))["benchmarks"]
        return BenchyResult(
            ttft_ms=statistics.fmean(level["e2e_ttft"]["values"]),
            tg_tps=level["tg_throughput"]["mean"],
            cpu_s=cpu_s,
            rounds=runs,
        )


def _run(
    command: Sequence[str], *, core: int | None = None, home: str | None = None, realtime: bool = False
) -> None:
    """Run a command to its end; print its output only if it fails."""
    cores = os.sched_getaffinity(0)
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"} | ({} if home is None else {"HOME": home})
    try:
        if core is not None:
            os.sched_setaffinity(0, {core})  # of this thread: inherited by what it starts
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
    finally:
        os.sched_setaffinity(0, cores)
    if realtime:
        go_first(process.pid)
    try:
        said, _ = process.communicate(timeout=_INSTALL_S if home is None else _RUN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    if process.returncode:
        print(said[-2000:], file=sys.stderr)
        raise subprocess.CalledProcessError(process.returncode, list(command))


def _children_cpu_s() -> float:
    """Return the CPU seconds of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@dataclass(slots=True)
class Row:
    """A row of the table: one figure, its goal, and its values by round."""

    what: str
    limit: float | None = None
    """The goal: the largest absolute value, or the smallest value with `at_least`."""
    at_least: bool = False
    digits: int = 2
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)

    @property
    def met(self) -> bool | None:
        """Whether the median meets the goal; None if there is no goal."""
        if self.limit is None:
            return None
        if not self.ours:
            return False
        median = statistics.median(self.ours)
        return median >= self.limit if self.at_least else abs(median) <= self.limit

    @property
    def cells(self) -> tuple[str, ...]:
        """The row's cells in Markdown."""
        goal = "" if self.limit is None else f"{'≥' if self.at_least else '≤'} {self.limit:,g}"
        verdict = {None: "", True: "met", False: "**missed**"}[self.met]
        return (self.what, self._shown(self.ours), goal, verdict, self._shown(self.theirs))

    def _shown(self, values: list[float]) -> str:
        if not values:
            return "–"
        median = f"{statistics.median(values):,.{self.digits}f}"
        if len(values) == 1:
            return median
        return f"{median} ({min(values):,.{self.digits}f} … {max(values):,.{self.digits}f})"


class Table:
    """All rows, in the order in which they were first used."""

    def __init__(self) -> None:
        """Start without rows."""
        self.rows: dict[str, Row] = {}

    def row(self, what: str, limit: float | None = None, *, at_least: bool = False, digits: int = 2) -> Row:
        """Return the row of that name; create it if it is new."""
        return self.rows.setdefault(what, Row(what, limit, at_least, digits))

    @property
    def lines(self) -> list[str]:
        """The table in Markdown."""
        heads = ("what", "sparktop", "goal", "", f"llama-benchy {VERSION}")
        return tables.table(heads, (row.cells for row in self.rows.values()))

    @property
    def missed(self) -> int:
        """Number of missed goals."""
        return sum(row.met is False for row in self.rows.values())


def percent_off(found: float | None, true: float) -> float:
    """Return the error of a figure in percent of the truth; -100 for a missing figure."""
    return 100 * ((found or 0.0) / true - 1)


@dataclass(frozen=True, slots=True)
class Bench:
    """The clients, the server and the table of a round; each public method measures one part."""

    generator: Generator
    truth: TruthProcess
    table: Table
    benchy: LlamaBenchy | None
    client_core: int

    async def bursts(self) -> None:
        """Measure TTFT and decode rate of bursts at a fixed pace."""
        for concurrency in BURSTS:
            pace, tokens = (PACE, TOKENS) if concurrency <= 64 else (SLOW_PACE, SLOW_TOKENS)
            load = await self.generator.burst(concurrency, tokens, pace)
            _must_be_whole(load)
            true_tps = decode_tps(load.streams.values())
            rate = self.table.row(f"decode_tps, c = {concurrency}, % off", 0.5)
            rate.ours.append(percent_off(_mean(load.figures.decode_tps), true_tps))
            goal, goal_p99 = {64: (1.0, 10.0), 256: (2.0, None)}.get(concurrency, (None, None))
            mean = self.table.row(f"mean TTFT, c = {concurrency}, ms off", goal)
            mean.ours.append(load.mean_ttft_error_ms)
            p99 = self.table.row(f"p99 of the TTFT's error, c = {concurrency}, ms", goal_p99)
            p99.ours.append(load.p99_ttft_error_ms)
            if self.benchy is not None and concurrency >= 64:
                self.truth.keep_to(pace)
                told = await self._benchy_burst(concurrency, tokens)
                streams = self.truth.streams()[concurrency:]  # after its warm-up
                if [len(one.stamps) for one in streams] != [tokens] * concurrency:
                    raise LoadFailedError(f"llama-benchy's burst of {concurrency} is not whole")
                true_ttft_ms = 1e3 * statistics.fmean(ttft_s(one) for one in streams)
                mean.theirs.append(told.ttft_ms - true_ttft_ms)
                rate.theirs.append(percent_off(told.tg_tps, decode_tps(streams)))

    async def batching(self) -> None:
        """Measure the rate while all streams decode, which no figure over the whole run shows."""
        slots = BATCHING.slots
        true_tps = BATCHING.pure_decode_tps
        load = await self.generator.burst(slots, TOKENS, BATCHING)
        _must_be_whole(load)
        figures, name = load.figures, f"continuous batching, c = {slots}"
        row = self.table.row(f"{name}: pure_decode_tps, % off", 1.0)
        row.ours.append(percent_off(_mean(figures.pure_decode_tps), true_tps))
        headline = self.table.row(f"{name}: decode_tps or tg_throughput off that rate, %")
        headline.ours.append(percent_off(_mean(figures.decode_tps), true_tps))
        output = self.table.row(f"{name}: output_tps off that rate, %")
        output.ours.append(percent_off(_mean(figures.output_tps), true_tps))
        output_truth = self.table.row(f"{name}: output_tps off its own truth, %")
        output_truth.ours.append(
            percent_off(_mean(figures.output_tps), output_tps(list(load.streams.values())))
        )
        if self.benchy is not None:
            self.truth.keep_to(BATCHING)
            headline.theirs.append(percent_off((await self._benchy_burst(slots, TOKENS)).tg_tps, true_tps))

    async def steady(self) -> None:
        """Measure the rate of a closed loop, between ramp and drain."""
        slots = BATCHING.slots
        load = await self.generator.steady(slots, TOKENS, BATCHING, STEADY_S)
        _must_be_whole(load)
        row = self.table.row(f"continuous batching, steady c = {slots}: sustained_tps, % off", 1.0)
        true_tps = sustained_tps(list(load.streams.values()), slots)
        row.ours.append(percent_off(_mean(load.figures.sustained_tps), true_tps))

    async def fast(self) -> None:
        """Measure the generator at the highest event rate that it must reach."""
        load = await self.generator.burst(FAST_STREAMS, FAST_TOKENS, FAST_PACE)
        made = sum(len(stream.stamps) for stream in load.streams.values())
        lost = self.table.row("events that got lost at full rate", 0.0, digits=0)
        lost.ours.append(made - (load.figures.tokens.generated or 0))
        true_tps = decode_tps(load.streams.values())
        took = true_tps if load.whole and load.late_ms < KEEPS_UP_MS else 0.0
        name = "events/s read, with token ids"
        rate = self.table.row(name, FASTEST_EVENTS_PER_S, at_least=True, digits=0)
        rate.ours.append(took)
        self.table.row("last token read after its write, ms").ours.append(load.late_ms)
        self.table.row("CPU per event at that rate, µs", COST_US, digits=1).ours.append(
            1e6 * load.cpu_s / made
        )

    async def cost(self) -> None:
        """Measure the CPU time per event of the generator's process, from the command to the last message."""
        for concurrency, (pace, tokens) in COSTS.items():
            load = await self.generator.burst(concurrency, tokens, pace)
            _must_be_whole(load)
            goal = COST_US if concurrency > 1 else None
            row = self.table.row(f"CPU per event, c = {concurrency}, µs", goal, digits=1)
            row.ours.append(1e6 * load.cpu_s / (concurrency * tokens))

    async def cancel(self) -> None:
        """Measure the time that cancelling a level in mid-stream takes."""
        row = self.table.row(f"cancelling c = {CANCELLED}: all streams closed after, s", 0.5, digits=3)
        row.ours.append(await self.generator.cancel_s(CANCELLED, CANCELLED_TOKENS, CANCELLED_PACE))

    async def _benchy_burst(
        self, concurrency: int, tokens: int, runs: int = 1, *, warm_up: bool = True
    ) -> BenchyResult:
        assert self.benchy is not None  # noqa: S101 - callers have checked it
        return await asyncio.to_thread(
            self.benchy.burst,
            self.truth.url,
            concurrency,
            tokens,
            core=self.client_core,
            runs=runs,
            warm_up=warm_up,
        )


def _mean(figure: object) -> float | None:
    return getattr(figure, "mean", None)


def _must_be_whole(load: Load) -> None:
    if not load.whole:
        raise LoadFailedError(
            f"{load.finished.id}: tokens or requests are missing: {load.figures.requests.errors}"
        )


def peer(options: argparse.Namespace) -> LlamaBenchy | None:
    """Return llama-benchy; None if it is excluded or cannot be installed."""
    if options.without_llama_benchy:
        return None
    try:
        return LlamaBenchy(options.peers, realtime=options.realtime)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"without llama-benchy, it cannot be installed: {error}", file=sys.stderr)
        return None


async def measure(options: argparse.Namespace, cores: list[int]) -> Table:
    """Run all rounds; return the table."""
    benchy = await asyncio.to_thread(peer, options)
    table = Table()
    server_core, client_core = cores[0], cores[1]
    with TruthProcess(server_core, realtime=options.realtime) as truth:
        async with generator_on(truth, client_core, realtime=options.realtime) as generator:
            os.sched_setaffinity(0, set(cores[2:]) or {server_core})
            bench = Bench(generator, truth, table, benchy, client_core)
            await generator.burst(16, 16, PACE)  # a process's first run has one-time costs
            for number in range(options.runs):
                for name in options.only or PARTS:
                    print(f"round {number + 1} of {options.runs}: {name}", file=sys.stderr)
                    await PARTS[name](bench)
    return table


PARTS = {
    "cost": Bench.cost,
    "bursts": Bench.bursts,
    "batching": Bench.batching,
    "steady": Bench.steady,
    "fast": Bench.fast,
    "cancel": Bench.cancel,
}


def main() -> int:
    """Print the table; return 1 if a goal is missed, else 0."""
    parser = tables.options(__doc__, runs=3)
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="NAME", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--realtime", action="store_true", help="let server and clients go first")
    parser.add_argument("--without-llama-benchy", action="store_true", help="measure sparktop alone")
    parser.add_argument("--peers", type=Path, default=PEERS, help="where llama-benchy is installed")
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        parser.error("server and client need a core each")
    before = os.getloadavg()[0]
    table = asyncio.run(measure(options, cores))
    words = (
        f"{platform.machine()}, {len(cores)} cores, Python {platform.python_version()}, {options.runs} rounds"
        f"{', real-time' if options.realtime else ''}; load average before {before:.1f}, after "
        f"{os.getloadavg()[0]:.1f}; {table.missed} goals missed."
    )
    tables.publish("generator.py", [*table.lines, "", words], write=options.write)
    return int(table.missed > 0)


if __name__ == "__main__":
    sys.exit(main())
