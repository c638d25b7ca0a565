"""Measure the load generator's errors and cost on a server of known truth, beside llama-benchy's.

The truth server streams by an absolute schedule and records the time of each write (`truth_server`). It has
one core, the client that loads it has another. Each round makes every load once, sparktop's and
llama-benchy's in turns; the table has medians over the rounds. Other work on the machine affects every
figure: judge a missed goal by the load average above the table.
With --realtime (as root), server and clients have priority over everything else on their cores, for a machine
with other work.

With --beside (as root), processes that are never idle run on the same cores at the client's priority; the
server, which must keep its schedule, has priority over them.

usage: generator.py [--rounds 3] [--only NAME…] [--realtime] [--beside N] [--without-llama-benchy]
                    [--peers FOLDER] [--check]
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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from truth import (
    PROMPT_TOKENS,
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
from truth_server import Batching, FixedPace, Stream

PEERS = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sparktop-benchmarks"
USUAL_DESCRIPTORS = 1024
"""The usual soft limit of file descriptors in a login shell."""
_SWEEP_S = 60.0
SWEEP_STREAMS, SWEEP_RUNS = 64, 3

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
MANY, MANY_PACE, MANY_TOKENS = 1024, FixedPace(first_token_s=0.5, token_gap_s=0.1), 16
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

    def __str__(self) -> str:
        """Return the row in Markdown."""
        goal = "" if self.limit is None else f"{'≥' if self.at_least else '≤'} {self.limit:,g}"
        verdict = {None: "", True: "met", False: "**missed**"}[self.met]
        return f"| {self.what} | {self._told(self.ours)} | {goal} | {verdict} | {self._told(self.theirs)} |"

    def _told(self, values: list[float]) -> str:
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

    def print(self) -> int:
        """Print the table; return the number of missed goals."""
        print(f"| what | sparktop | goal | | llama-benchy {VERSION} |\n|---|---|---|---|---|")
        print(*self.rows.values(), sep="\n")
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

    async def many(self) -> None:
        """Measure a thousand streams with the usual limit of file descriptors."""
        row = self.table.row(f"requests that ended well, c = {MANY}", MANY, at_least=True, digits=0)
        try:
            load = await self.generator.burst(MANY, MANY_TOKENS, MANY_PACE)
        except LoadFailedError as error:
            print(f"c = {MANY}: {error}", file=sys.stderr)
            return
        row.ours.append(load.figures.requests.ok if load.whole else 0)
        self.table.row(f"mean TTFT, c = {MANY}, ms off").ours.append(load.mean_ttft_error_ms)

    async def cancel(self) -> None:
        """Measure the time that cancelling a level in mid-stream takes."""
        row = self.table.row(f"cancelling c = {CANCELLED}: all streams closed after, s", 0.5, digits=3)
        row.ours.append(await self.generator.cancel_s(CANCELLED, CANCELLED_TOKENS, CANCELLED_PACE))

    async def small_sweep(self) -> None:
        """Measure the CPU time of a whole sweep: start, calibration, 192 requests, figures, result file."""
        row = self.table.row("CPU of a sweep of 192 requests, 128 tokens, c = 64: whole program, s", 3.0)
        self.truth.keep_to(PACE)
        cpu_s, level = await asyncio.to_thread(_sweep_command, self.truth.url)
        row.ours.append(cpu_s)
        streams = self._whole_sweep()
        rate = self.table.row("the same sweep's decode_tps in its result file, % off", 0.5)
        runs = [streams[at : at + SWEEP_STREAMS] for at in range(0, len(streams), SWEEP_STREAMS)]
        true_tps = statistics.fmean(decode_tps(run) for run in runs)
        rate.ours.append(percent_off(level["decode_tps"]["mean"], true_tps))
        mean = self.table.row("the same sweep's mean TTFT in its result file, ms off", 2.0)
        mean.ours.append(level["ttft_ms"]["mean"] - 1e3 * statistics.fmean(map(ttft_s, streams)))
        if self.benchy is not None:
            self.truth.keep_to(PACE)
            told = await self._benchy_burst(SWEEP_STREAMS, TOKENS, runs=SWEEP_RUNS, warm_up=False)
            self._whole_sweep()
            row.theirs.append(told.cpu_s)

    def _whole_sweep(self) -> list[Stream]:
        """Return the streams of the small sweep without its calibration; raise if any is incomplete."""
        streams = [one for one in self.truth.streams() if one.asked_tokens == TOKENS]
        if len(streams) != SWEEP_STREAMS * SWEEP_RUNS or any(len(one.stamps) != TOKENS for one in streams):
            raise LoadFailedError(f"the small sweep made {len(streams)} requests, or not all of their tokens")
        return streams

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


def _sweep_command(url: str) -> tuple[float, dict[str, Any]]:
    """Run `sparktop sweep`; return (CPU seconds of it and its generator, the level in its result)."""
    options = ["-c", str(SWEEP_STREAMS), "--runs", str(SWEEP_RUNS), "--tg", str(TOKENS), "--no-warm-up"]
    options += ["--pp", str(PROMPT_TOKENS), "--format", "json"]
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "HOME": home, "XDG_DATA_HOME": home, "XDG_CONFIG_HOME": home}
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        said = subprocess.run(
            [sys.executable, "-m", "sparktop", "sweep", url, *options],
            check=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_SWEEP_S,
            env=environment,
        ).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    (level,) = json.loads(said)["targets"][0]["levels"]
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, level


def peer(options: argparse.Namespace) -> LlamaBenchy | None:
    """Return llama-benchy; None if it is excluded or cannot be installed."""
    if options.without_llama_benchy:
        return None
    try:
        return LlamaBenchy(options.peers, realtime=options.realtime)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"without llama-benchy, it cannot be installed: {error}", file=sys.stderr)
        return None


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Keep `count` processes busy at normal priority until the end of the block."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


async def measure(options: argparse.Namespace, cores: list[int]) -> Table:
    """Run all rounds; return the table."""
    benchy = await asyncio.to_thread(peer, options)
    table = Table()
    server_core, client_core = cores[0], cores[1]
    with TruthProcess(server_core, realtime=options.realtime or options.beside > 0) as truth:
        async with generator_on(truth, client_core, realtime=options.realtime) as generator:
            os.sched_setaffinity(0, set(cores[2:]) or {server_core})
            bench = Bench(generator, truth, table, benchy, client_core)
            await generator.burst(16, 16, PACE)  # a process's first run has one-time costs
            for number in range(options.rounds):
                for name in options.only or PARTS:
                    print(f"round {number + 1} of {options.rounds}: {name}", file=sys.stderr)
                    await PARTS[name](bench)
    return table


PARTS = {
    "cost": Bench.cost,
    "bursts": Bench.bursts,
    "batching": Bench.batching,
    "steady": Bench.steady,
    "fast": Bench.fast,
    "many": Bench.many,
    "cancel": Bench.cancel,
    "small_sweep": Bench.small_sweep,
}


def main() -> int:
    """Print the table; return 1 with --check if a goal is missed, else 0."""
    parser = argparse.ArgumentParser(prog="generator.py", description=(__doc__ or "").split("\n\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=3, help="how often everything is measured")
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="NAME", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--realtime", action="store_true", help="let server and clients go first")
    parser.add_argument("--beside", type=int, default=0, metavar="N", help="processes that are never idle")
    parser.add_argument("--without-llama-benchy", action="store_true", help="measure sparktop alone")
    parser.add_argument("--peers", type=Path, default=PEERS, help="where llama-benchy is installed")
    parser.add_argument("--check", action="store_true", help="exit 1 when a goal is missed")
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        parser.error("server and client need a core each")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(USUAL_DESCRIPTORS, hard), hard))
    load_before = os.getloadavg()[0]
    with busy_processes(options.beside):
        table = asyncio.run(measure(options, cores))
    print(
        f"{platform.machine()}, {len(cores)} cores, Python {platform.python_version()}, "
        f"{options.rounds} rounds{', real-time' if options.realtime else ''}, "
        f"{options.beside} busy processes beside it; "
        f"load average before {load_before:.1f}, after {os.getloadavg()[0]:.1f}\n"
    )
    missed = table.print()
    print(f"\n{missed} goals missed")
    return int(options.check and missed > 0)


if __name__ == "__main__":
    sys.exit(main())
