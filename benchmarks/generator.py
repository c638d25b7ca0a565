"""Measure the load generator's errors and cost on a server of known truth, beside llama-benchy's.

The truth server streams by an absolute schedule and records the time of each write (`truth_server`). It has
one core, the client that loads it has another. Each round makes every load once, sparktop's and
llama-benchy's in turns; the table has medians over the rounds. Other work on the machine affects every
figure: judge a missed goal by the load average above the table.

usage: generator.py [--runs 3] [--only NAME…] [--without-llama-benchy] [--write]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
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
    sustained_tps,
    ttft_s,
)
from truth_server import Batching, FixedPace

PEERS = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sparktop-benchmarks"

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


PARTS = ("cost", "bursts", "batching", "steady", "fast")
"""Names of the methods of `Bench` that each measure a part."""
VERSION = "0.4.0"
_MAKE_MODEL = Path(__file__).resolve().parents[1] / "scripts" / "make_model.py"
_INSTALL_S = 600.0
_RUN_S = 180.0


class LlamaBenchy:
    """An installed llama-benchy."""

    def __init__(self, folder: Path) -> None:
        """Install llama-benchy below `folder` if it is missing.

        Raises:
            OSError, subprocess.SubprocessError: the installation failed.
        """
        environment = folder / f"llama-benchy-{VERSION}"
        self._program = environment / "bin" / "llama-benchy"
        self._tokenizer = folder / "tokenizer"
        python = str(environment / "bin" / "python")
        if not self._program.exists():
            print(f"installing llama-benchy {VERSION} into {environment}", file=sys.stderr)
            venv.create(environment, with_pip=True)
            _run([python, "-m", "pip", "install", "--quiet", f"llama-benchy=={VERSION}"], _INSTALL_S)
        if not (self._tokenizer / "tokenizer.json").exists():
            _run([python, str(_MAKE_MODEL), "tiny", str(self._tokenizer)], _INSTALL_S)

    def burst(self, url: str, concurrency: int, tokens: int, *, core: int) -> tuple[float, float]:
        """Run llama-benchy on one core: a warm-up, and a burst of `concurrency` requests.

        Returns:
            (mean of `e2e_ttft` in ms, its time from the call to the first token; mean of `tg_throughput`).

        Raises:
            subprocess.SubprocessError: llama-benchy failed or took too long.
        """
        options = ["--concurrency", str(concurrency), "--tg", str(tokens), "--runs", "1"]
        options += ["--pp", "64", "--exact-tg", "--latency-mode", "none", "--skip-coherence"]
        with tempfile.TemporaryDirectory() as home:
            result = Path(home) / "result.json"
            options += ["--save-result", str(result), "--format", "json"]
            options += ["--base-url", f"{url}/v1", "--model", "truth", "--tokenizer", str(self._tokenizer)]
            options += ["--book-url", f"{url}/book.txt"]
            _run(["taskset", "-c", str(core), str(self._program), *options], _RUN_S, HOME=home)
            (level,) = json.loads(result.read_text(encoding="utf-8"))["benchmarks"]
        return statistics.fmean(level["e2e_ttft"]["values"]), level["tg_throughput"]["mean"]


def _run(command: Sequence[str], timeout_s: float, **environment: str) -> None:
    """Run a command to its end; print its output only if it fails."""
    env = {**os.environ, "HF_HUB_OFFLINE": "1", **environment}
    done = subprocess.run(
        command,
        env=env,
        timeout=timeout_s,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        print(done.stdout[-2000:], file=sys.stderr)
        raise subprocess.CalledProcessError(done.returncode, list(command))


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


def percent_off(found: float | None, true: float) -> float:
    """Return the error of a figure in percent of the truth; -100 for a missing figure."""
    return 100 * ((found or 0.0) / true - 1)


@dataclass(slots=True)
class Bench:
    """The clients, the server and the table; each public method measures one part."""

    generator: Generator
    truth: TruthProcess
    benchy: LlamaBenchy | None
    client_core: int
    rows: dict[str, Row] = field(default_factory=dict)
    """All rows of the table, in the order in which they were first used."""

    def row(self, what: str, limit: float | None = None, *, at_least: bool = False, digits: int = 2) -> Row:
        """Return the row of that name; create it if it is new."""
        return self.rows.setdefault(what, Row(what, limit, at_least, digits))

    async def bursts(self) -> None:
        """Measure TTFT and decode rate of bursts at a fixed pace."""
        for concurrency in BURSTS:
            pace, tokens = (PACE, TOKENS) if concurrency <= 64 else (SLOW_PACE, SLOW_TOKENS)
            load = await self.generator.burst(concurrency, tokens, pace)
            _must_be_whole(load)
            true_tps = decode_tps(load.streams.values())
            rate = self.row(f"decode_tps, c = {concurrency}, % off", 0.5)
            rate.ours.append(percent_off(_mean(load.figures.decode_tps), true_tps))
            goal, goal_p99 = {64: (1.0, 10.0), 256: (2.0, None)}.get(concurrency, (None, None))
            mean = self.row(f"mean TTFT, c = {concurrency}, ms off", goal)
            mean.ours.append(load.mean_ttft_error_ms)
            p99 = self.row(f"p99 of the TTFT's error, c = {concurrency}, ms", goal_p99)
            p99.ours.append(load.p99_ttft_error_ms)
            if self.benchy is not None and concurrency >= 64:
                self.truth.keep_to(pace)
                ttft_ms, tg_tps = await self._benchy_burst(concurrency, tokens)
                streams = self.truth.streams()[concurrency:]  # after its warm-up
                if [len(one.stamps) for one in streams] != [tokens] * concurrency:
                    raise LoadFailedError(f"llama-benchy's burst of {concurrency} is not whole")
                true_ttft_ms = 1e3 * statistics.fmean(ttft_s(one) for one in streams)
                mean.theirs.append(ttft_ms - true_ttft_ms)
                rate.theirs.append(percent_off(tg_tps, decode_tps(streams)))

    async def batching(self) -> None:
        """Measure the rate while all streams decode, which no figure over the whole run shows."""
        slots = BATCHING.slots
        true_tps = BATCHING.pure_decode_tps
        load = await self.generator.burst(slots, TOKENS, BATCHING)
        _must_be_whole(load)
        figures, name = load.figures, f"continuous batching, c = {slots}"
        row = self.row(f"{name}: pure_decode_tps, % off", 1.0)
        row.ours.append(percent_off(_mean(figures.pure_decode_tps), true_tps))
        headline = self.row(f"{name}: decode_tps or tg_throughput off that rate, %")
        headline.ours.append(percent_off(_mean(figures.decode_tps), true_tps))
        if self.benchy is not None:
            self.truth.keep_to(BATCHING)
            _, tg_tps = await self._benchy_burst(slots, TOKENS)
            headline.theirs.append(percent_off(tg_tps, true_tps))

    async def steady(self) -> None:
        """Measure the rate of a closed loop, between ramp and drain."""
        slots = BATCHING.slots
        load = await self.generator.steady(slots, TOKENS, BATCHING, STEADY_S)
        _must_be_whole(load)
        row = self.row(f"continuous batching, steady c = {slots}: sustained_tps, % off", 1.0)
        true_tps = sustained_tps(list(load.streams.values()), slots)
        row.ours.append(percent_off(_mean(load.figures.sustained_tps), true_tps))

    async def fast(self) -> None:
        """Measure the generator at the highest event rate that it must reach."""
        load = await self.generator.burst(FAST_STREAMS, FAST_TOKENS, FAST_PACE)
        made = sum(len(stream.stamps) for stream in load.streams.values())
        lost = self.row("events that got lost at full rate", 0.0, digits=0)
        lost.ours.append(made - (load.figures.tokens.generated or 0))
        true_tps = decode_tps(load.streams.values())
        took = true_tps if load.whole and load.late_ms < KEEPS_UP_MS else 0.0
        name = "events/s read, with token ids"
        rate = self.row(name, FASTEST_EVENTS_PER_S, at_least=True, digits=0)
        rate.ours.append(took)
        self.row("last token read after its write, ms").ours.append(load.late_ms)
        self.row("CPU per event at that rate, µs", COST_US, digits=1).ours.append(1e6 * load.cpu_s / made)

    async def cost(self) -> None:
        """Measure the CPU time per event of the generator's process, from the command to the last message."""
        for concurrency, (pace, tokens) in COSTS.items():
            load = await self.generator.burst(concurrency, tokens, pace)
            _must_be_whole(load)
            goal = COST_US if concurrency > 1 else None
            row = self.row(f"CPU per event, c = {concurrency}, µs", goal, digits=1)
            row.ours.append(1e6 * load.cpu_s / (concurrency * tokens))

    async def _benchy_burst(self, concurrency: int, tokens: int) -> tuple[float, float]:
        assert self.benchy is not None  # noqa: S101 - callers have checked it
        burst = self.benchy.burst
        return await asyncio.to_thread(burst, self.truth.url, concurrency, tokens, core=self.client_core)


def _mean(figure: object) -> float | None:
    return getattr(figure, "mean", None)


def _must_be_whole(load: Load) -> None:
    if not load.whole:
        raise LoadFailedError(
            f"{load.finished.id}: tokens or requests are missing: {load.figures.requests.errors}"
        )


async def measure(options: argparse.Namespace, cores: list[int]) -> dict[str, Row]:
    """Run all rounds; return the rows of the table by name."""
    benchy = None
    if not options.without_llama_benchy:
        try:
            benchy = await asyncio.to_thread(LlamaBenchy, PEERS)
        except (OSError, subprocess.SubprocessError) as error:
            print(f"without llama-benchy, it cannot be installed: {error}", file=sys.stderr)
    server_core, client_core = cores[0], cores[1]
    with TruthProcess(server_core) as truth:
        async with generator_on(truth, client_core) as generator:
            os.sched_setaffinity(0, set(cores[2:]) or {server_core})
            bench = Bench(generator, truth, benchy, client_core)
            await generator.burst(16, 16, PACE)  # a process's first run has one-time costs
            for number in range(options.runs):
                for name in options.only or PARTS:
                    print(f"round {number + 1} of {options.runs}: {name}", file=sys.stderr)
                    await getattr(bench, name)()
    return bench.rows


def main() -> int:
    """Print the table; return 1 if a goal is missed, else 0."""
    parser = tables.options(__doc__, runs=3)
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="NAME", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--without-llama-benchy", action="store_true", help="measure sparktop alone")
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        parser.error("server and client need a core each")
    before = os.getloadavg()[0]
    rows = asyncio.run(measure(options, cores)).values()
    missed = sum(row.met is False for row in rows)
    words = (
        f"{platform.machine()}, {len(cores)} cores, Python {platform.python_version()}, {options.runs} rounds"
        f"; load average before {before:.1f}, after {os.getloadavg()[0]:.1f}; {missed} goals missed."
    )
    heads = ("what", "sparktop", "goal", "", f"llama-benchy {VERSION}")
    lines = tables.table(heads, (row.cells for row in rows))
    tables.publish("generator.py", [*lines, "", words], write=options.write)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
