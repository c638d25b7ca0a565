"""Keys while a sweep runs, and what the screen costs the load: all of it on two cores.

sparktop runs in a 120x36 pseudo-terminal and sweeps the truth server at c = 256 with 40 tokens a second each:
10,240 tokens a second. Server, generator, sparktop and this program share two cores. Within the measured run
50 keys are pressed one by one, each timed from its write to the first byte that the terminal gets. Drawing
goes on by itself meanwhile, so the same wait without a key is told beside it. Then the same sweep again with
sparktop's event loop standing still for 200 ms in every second: the generator is a process of its own, and
its figures must not change. What it gives with no screen at all is told beside both.

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
"""They move the selection: each changes what is drawn."""
GOAL_KEY_MS, GOAL_LAG_MS, GOAL_RATIO = 100.0, 5.0, 0.02
BLOCK_MS, EVERY_S = 200, 1
F9 = "\x1b[20~"
_START_S, _SWEEP_S = 60.0, 180.0
_PATIENCE_S = 5.0
_FIRST = -20
README = Path(__file__).parent / "README.md"
BEGIN, END = "<!-- sweeping.py: begin -->", "<!-- sweeping.py: end -->"


class SweepFailedError(Exception):
    """The sweep did not go as it should; the message says how."""


@dataclass(slots=True)
class Measured:
    """What one way of running sparktop gave, over all rounds."""

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
        """Give its line of the table."""
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
    """Give a configuration that watches the server and sweeps it at a key."""
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
    """Start sparktop, have it sweep, press keys meanwhile, and take the figures from its result."""
    truth.keep_to(PACE)
    places = {"HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_STATE_HOME": str(folder)}
    # Bytecode may be turned off where this runs.
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
    """Press keys one by one, and wait as often without one."""
    dice = Random(1)  # noqa: S311 - moments of key presses, no secret
    for number in range(PRESSES):
        # No multiple of the half second at which everything is drawn anyway.
        program.idle(dice.uniform(0.1, 0.3))
        waited_s = program.press(KEYS[number % len(KEYS)], _PATIENCE_S)
        if waited_s is None:
            raise SweepFailedError(f"key {number + 1} changed nothing for {_PATIENCE_S:.0f} s")
        into.keys_ms.append(1e3 * waited_s)
        if number % 5 == 0:
            program.idle(dice.uniform(0.1, 0.3))
            # No key: how long would whatever comes anyway have taken?
            unasked_s = program.press("", _PATIENCE_S)
            into.unasked_ms.append(1e3 * (_PATIENCE_S if unasked_s is None else unasked_s))


def finished(program: PtyProgram, folder: Path) -> dict[str, Any]:
    """Wait for the end of the sweep and give its result, as it lies on disk.

    Raises:
        SweepFailedError: it has no good end.
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
    """Make the same burst with the generator alone."""
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
    """Make all rounds, with no screen and both ways, in turns."""
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
    """Name the goals that are not met."""
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
    """Give what standing still changes in the generator's figures."""
    return {
        "TTFT": statistics.fmean(blocked.ttft_ms) / statistics.fmean(free.ttft_ms),
        "decode": statistics.fmean(blocked.decode_tps) / statistics.fmean(free.decode_tps),
    }


def table(alone: Measured, free: Measured, blocked: Measured, cores: int, rounds: int) -> list[str]:
    """Give everything that was measured."""
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
    """Put the table between its marks in the README."""
    before, _, rest = README.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    README.write_text("\n".join((f"{before}{BEGIN}", "", *lines, "", f"{END}{after}")))


def main() -> int:
    """Print the table; with --check, exit 1 when a goal is missed."""
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
        # All that is started inherits it: among each other they stay as they are.
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
