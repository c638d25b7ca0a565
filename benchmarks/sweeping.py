"""Measure the latency of keys while a sweep runs, and the screen's effect on the load, on two cores.

sparktop runs in a 120x36 pseudo-terminal and sweeps the truth server at c = 256 with 40 tokens per second
each: 10,240 tokens per second. Server, generator, sparktop and this program share two cores. During the
measured run 50 keys are pressed one by one, each timed from its write to the first byte of output. Since the
screen is also drawn without keys, the same wait without a key is measured too. Then the sweep is repeated
with sparktop's event loop blocked for 200 ms in every second: the generator is a separate process, and its
figures must not change. Its figures without any screen are measured as well.

usage: sweeping.py [--rounds 3] [--cores 0 1] [--first] [--write] [--check]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import resource
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from generator_load import Generator
from ptybench import PtyProgram
from truth import TruthProcess, decode_tps, ttft_s
from truth_schedule import FixedPace

from sparktop.sweep.run.worker_process import SweepWorker
from sparktop.sweep.terms.statistics import quantile

CONCURRENCY, TOKENS = 256, 1000
PACE = FixedPace(first_token_s=0.2, token_gap_s=0.025)
EVENTS_PER_S = CONCURRENCY / PACE.token_gap_s
COLUMNS, ROWS = 120, 36
PRESSES = 50
KEYS = "jk"
"""Keys that move the selection: each changes what is drawn."""
GOAL_KEY_MS, GOAL_LAG_MS, GOAL_RATIO = 100.0, 5.0, 0.02
BLOCK_MS, EVERY_S = 200, 1
F9 = "\x1b[20~"
_START_S, _SWEEP_S = 60.0, 180.0
_PATIENCE_S = 5.0
_FIRST = -20
README = Path(__file__).parent / "README.md"
BEGIN, END = "<!-- sweeping.py: begin -->", "<!-- sweeping.py: end -->"


class SweepFailedError(Exception):
    """The sweep failed; the message has the reason."""


@dataclass(slots=True)
class Measured:
    """The measurements of one way of running sparktop, over all rounds."""

    name: str
    keys_ms: list[float] = field(default_factory=list)
    unasked_ms: list[float] = field(default_factory=list)
    """Waits for the next byte with no key pressed."""
    lag_p99_ms: list[float] = field(default_factory=list)
    ttft_ms: list[float] = field(default_factory=list)
    ttft_off_ms: list[float] = field(default_factory=list)
    decode_tps: list[float] = field(default_factory=list)
    decode_off_percent: list[float] = field(default_factory=list)

    def row(self) -> str:
        """Return its row of the table."""
        keys, unasked = sorted(self.keys_ms), sorted(self.unasked_ms)
        waits = [(keys, 0.5), (keys, 0.95), (unasked, 0.5)]
        cells = [
            self.name,
            *(f"{quantile(values, share):.0f}" if values else "–" for values, share in waits),
            f"{statistics.median(self.lag_p99_ms):.2f} ({max(self.lag_p99_ms):.2f})",
            f"{statistics.fmean(self.ttft_ms):.1f}",
            f"{statistics.fmean(self.ttft_off_ms):+.2f}",
            f"{statistics.fmean(self.decode_tps):,.0f}",
            f"{statistics.fmean(self.decode_off_percent):+.2f}",
        ]
        return f"| {' | '.join(cells)} |"


def configuration(truth: TruthProcess) -> str:
    """Return a configuration that watches the server and sweeps it when F9 is pressed."""
    return (
        "[[backends]]\n"
        'name = "truth"\n'
        f'url = "{truth.url}"\n'
        'engine = "openai"\n'
        "[[sweeps]]\n"
        'name = "bench"\n'
        'key = "f9"\n'
        'targets = ["truth"]\n'
        f"concurrency = [{CONCURRENCY}]\n"
        "pp = 64\n"
        f"tg = {TOKENS}\n"
        "runs = 1\n"
    )


def one_sweep(truth: TruthProcess, command: Sequence[str], folder: Path, into: Measured) -> None:
    """Start sparktop and a sweep, press keys meanwhile, and add the figures of the result to `into`."""
    truth.keep_to(PACE)
    places = {"HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_STATE_HOME": str(folder)}
    # The environment may have turned bytecode off.
    compiled = {"PYTHONPYCACHEPREFIX": str(folder / "compiled"), "PYTHONDONTWRITEBYTECODE": ""}
    with PtyProgram(command, columns=COLUMNS, rows=ROWS, env=places | compiled) as program:
        _expect(program, "truth", _START_S)
        program.idle(1.0)
        program.press(F9)
        _expect(program, "run 1", _START_S)
        press_keys(program, into)
        result = finished(program, folder)
    (level,) = result["targets"][0]["levels"]
    streams = [one for one in truth.streams() if one.asked_tokens == TOKENS][-CONCURRENCY:]
    if level["requests"]["failed"] or any(len(one.stamps) != TOKENS for one in streams):
        raise SweepFailedError(f"not all requests came to their end: {level['requests']}")
    ttft_ms, tps = level["ttft_ms"]["mean"], level["decode_tps"]["mean"]
    true_tps = decode_tps(streams)
    into.lag_p99_ms.append(result["client"]["loop_lag_ms"]["p99"])
    into.ttft_ms.append(ttft_ms)
    into.ttft_off_ms.append(ttft_ms - 1e3 * statistics.fmean(map(ttft_s, streams)))
    into.decode_tps.append(tps)
    into.decode_off_percent.append(100 * (tps / true_tps - 1))


def press_keys(program: PtyProgram, into: Measured) -> None:
    """Press keys one by one; after every fifth, also time a wait without a key."""
    dice = Random(1)  # noqa: S311 - moments of key presses, no secret
    for number in range(PRESSES):
        # Not a multiple of the half second at which everything is drawn anyway.
        program.idle(dice.uniform(0.1, 0.3))
        waited_s = program.press(KEYS[number % len(KEYS)], _PATIENCE_S)
        if waited_s is None:
            raise SweepFailedError(f"key {number + 1} changed nothing for {_PATIENCE_S:.0f} s")
        into.keys_ms.append(1e3 * waited_s)
        if number % 5 == 0:
            program.idle(dice.uniform(0.1, 0.3))
            # Without a key: the wait for the output that comes anyway.
            unasked_s = program.press("", _PATIENCE_S)
            into.unasked_ms.append(1e3 * (_PATIENCE_S if unasked_s is None else unasked_s))


def finished(program: PtyProgram, folder: Path) -> dict[str, Any]:
    """Wait for the end of the sweep; return its result, read from the file on disk.

    Raises:
        SweepFailedError: the sweep was not completed, or not in time.
    """
    for _ in range(int(_SWEEP_S)):
        for path in sorted(folder.glob("sparktop/sweeps/*.json")):
            text = path.read_text()
            result: dict[str, Any] = json.loads(text) if text else {}
            if result.get("status") == "done":
                path.unlink()
                return result
            if result.get("status") is not None:
                raise SweepFailedError(f"the sweep ended as {result['status']}: {result.get('stop_reason')}")
        program.idle(1.0)
    raise SweepFailedError(f"no result within {_SWEEP_S:.0f} s")


def _expect(program: PtyProgram, text: str, seconds: float) -> None:
    if program.wait_for([text], seconds) is None:
        raise SweepFailedError(f"'{text}' did not come on the screen within {seconds:.0f} s")


async def without_screen(truth: TruthProcess, into: Measured) -> None:
    """Perform the same burst with the generator alone."""
    async with await SweepWorker.start() as worker:
        generator = Generator(worker, truth)
        await generator.calibrate()
        load = await generator.burst(CONCURRENCY, TOKENS, PACE)
    figures, lag = load.figures, load.finished.health.loop_lag_ms
    streams = list(load.streams.values())
    if not load.whole or lag is None or figures.ttft_ms is None or figures.decode_tps is None:
        raise SweepFailedError("the generator alone did not make the whole load")
    into.lag_p99_ms.append(lag.p99)
    into.ttft_ms.append(figures.ttft_ms.mean)
    into.ttft_off_ms.append(load.mean_ttft_error_ms)
    into.decode_tps.append(figures.decode_tps.mean)
    into.decode_off_percent.append(100 * (figures.decode_tps.mean / decode_tps(streams) - 1))


def measure(rounds: int) -> tuple[Measured, Measured, Measured]:
    """Run all rounds, in turns: without a screen, with sparktop as it is, and with a blocked loop."""
    alone = Measured("no screen: the generator alone")
    free = Measured("as it is")
    blocked = Measured(f"its loop stands still {BLOCK_MS} ms in every second")
    with tempfile.TemporaryDirectory() as name, TruthProcess() as truth:
        folder = Path(name)
        config = folder / "sparktop.toml"
        config.write_text(configuration(truth))
        usual = (sys.executable, "-m", "sparktop", "--config", str(config))
        script = str(Path(__file__).with_name("sweeping_app.py"))
        still = (sys.executable, script, str(config), str(BLOCK_MS), str(EVERY_S))
        for number in range(rounds):
            print(f"round {number + 1} of {rounds}: {alone.name}", file=sys.stderr)
            asyncio.run(without_screen(truth, alone))
            for into, command in ((free, usual), (blocked, still)):
                print(f"round {number + 1} of {rounds}: {into.name}", file=sys.stderr)
                one_sweep(truth, command, folder, into)
    return alone, free, blocked


def missed(free: Measured, blocked: Measured) -> list[str]:
    """Return a message for each goal that is missed."""
    found = []
    key_ms = quantile(sorted(free.keys_ms), 0.95)
    if key_ms >= GOAL_KEY_MS:
        found.append(f"p95 of the keys {key_ms:.0f} ms, not under {GOAL_KEY_MS:.0f}")
    for one in (free, blocked):
        lag_ms = statistics.median(one.lag_p99_ms)
        if lag_ms >= GOAL_LAG_MS:
            found.append(f"{one.name}: p99 of the generator's lag {lag_ms:.2f} ms, not under {GOAL_LAG_MS:g}")
    for name, ratio in ratios(free, blocked).items():
        if abs(ratio - 1) > GOAL_RATIO:
            found.append(f"{name} standing still is {ratio:.3f} times as it is, not within {GOAL_RATIO:.0%}")
    return found


def ratios(free: Measured, blocked: Measured) -> dict[str, float]:
    """Return the ratios of the generator's figures with a blocked loop to those without."""
    return {
        "TTFT": statistics.fmean(blocked.ttft_ms) / statistics.fmean(free.ttft_ms),
        "decode": statistics.fmean(blocked.decode_tps) / statistics.fmean(free.decode_tps),
    }


def table(alone: Measured, free: Measured, blocked: Measured, cores: int, rounds: int) -> list[str]:
    """Return the table of all measurements, as lines of Markdown."""
    changed = ", ".join(f"{name} x {ratio:.4f}" for name, ratio in ratios(free, blocked).items())
    machine = f"{platform.machine()}, {cores} cores, Python {platform.python_version()}, {rounds} round(s)"
    load = f"c = {CONCURRENCY}, {EVENTS_PER_S:,.0f} tokens/s, {len(free.keys_ms)} keys each way"
    heads = (
        "sparktop",
        "key ms, p50",
        "p95",
        "next byte without a key, p50",
        "generator's lag p99 ms (most)",
        "TTFT ms",
        "off the truth, ms",
        "decode tokens/s",
        "off the truth, %",
    )
    return [
        f"{machine}; {load}",
        "",
        f"| {' | '.join(heads)} |",
        "|---|---|---|---|---|---|---|---|---|",
        alone.row(),
        free.row(),
        blocked.row(),
        "",
        f"Standing still changes the generator's figures by: {changed}.",
    ]


def write(lines: Sequence[str]) -> None:
    """Write the table between its marks in the README."""
    before, _, rest = README.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    README.write_text("\n".join((f"{before}{BEGIN}", "", *lines, "", f"{END}{after}")))


def main() -> int:
    """Print the table; return 1 with --check if a goal is missed, else 0."""
    parser = argparse.ArgumentParser(prog="sweeping.py", description=(__doc__ or "").split("\n\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=3, help="how often both ways are measured")
    parser.add_argument("--cores", type=int, nargs="+", help="which cores everything runs on (default: two)")
    parser.add_argument("--first", action="store_true", help="all of it goes before the rest of the machine")
    parser.add_argument("--write", action="store_true", help="put the table into benchmarks/README.md")
    parser.add_argument("--check", action="store_true", help="exit 1 when a goal is missed")
    options = parser.parse_args()
    cores = set(options.cores or sorted(os.sched_getaffinity(0))[:2])
    os.sched_setaffinity(0, cores)
    if options.first:
        # All processes started inherit it, so they stay equal among each other.
        os.setpriority(os.PRIO_PROCESS, 0, _FIRST)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 4096), hard), hard))
    load_before = os.getloadavg()[0]
    alone, free, blocked = measure(options.rounds)
    lines = table(alone, free, blocked, len(cores), options.rounds)
    lines[0] += (
        f"; load average before {load_before:.1f}{', all of it with --first' if options.first else ''}"
    )
    print("\n".join(lines))
    if options.write:
        write(lines)
    wrong = missed(free, blocked)
    print("\nGoals: " + ("all met" if not wrong else "; ".join(wrong)))
    return int(options.check and bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
