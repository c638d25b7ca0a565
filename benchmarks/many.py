"""Measure the cost of watching 64 backends, and the response time of keys meanwhile.

One process serves 64 simulated engines; sparktop polls them once a second in a 200x50 pseudo-terminal, in
each view in turn. Measured are the CPU time of sparktop alone and, for 50 presses of an arrow key at random
moments, the time until the first byte of the response. Two backends are measured in the same run, to compare.

usage: many.py [--backends 64] [--seconds 20] [--presses 50]
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
from pathlib import Path

from ptybench import PtyProgram

from sparktop.demo.command import DemoCluster, as_toml, make_watch

COLUMNS, ROWS = 200, 50
WARM_UP_S = 8.0
GOAL_CPU_PERCENT = 25.0
GOAL_ANSWER_MS = 100.0
VIEWS = ("watch", "compact", "one backend", "wall")


def measure(backends: int, seconds: float, presses: int) -> list[tuple[str, float, float, float]]:
    """Measure each view in turn; return its (view, CPU percent, kB/s, p95 response time in ms)."""
    rows: list[tuple[str, float, float, float]] = []
    with DemoCluster(backends=backends) as cluster, tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "sparktop.toml"
        config.write_text(as_toml(make_watch(cluster)), encoding="utf-8")
        command = (sys.executable, "-m", "sparktop", "--config", str(config))
        env = {"XDG_STATE_HOME": folder}
        with PtyProgram(command, columns=COLUMNS, rows=ROWS, env=env) as program:
            program.idle(WARM_UP_S)
            for view in VIEWS:
                window = program.measure(seconds)
                answers: list[float] = []
                for _ in range(presses):
                    program.idle(random.uniform(0.02, 0.25))  # noqa: S311 - random moments, no secret
                    took = program.press("\x1b[B")
                    if took is not None:
                        answers.append(1000 * took)
                p95 = statistics.quantiles(answers, n=20)[-1] if len(answers) > 1 else float("nan")
                rows.append((view, window.cpu_percent, window.bytes_per_s / 1000, p95))
                program.press("v")
                program.idle(2.0)
    return rows


def main() -> int:
    """Print the table; return 1 if a goal is missed, else 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--backends", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--presses", type=int, default=50)
    options = parser.parse_args()
    print("| backends | view | CPU, % of a core | kB/s | key answered, p95 ms |")
    print("|---|---|---|---|---|")
    missed = 0
    for count in (2, options.backends):
        for view, cpu, kb, p95 in measure(count, options.seconds, options.presses):
            print(f"| {count} | {view} | {cpu:.1f} | {kb:.1f} | {p95:.0f} |", flush=True)
            missed += cpu > GOAL_CPU_PERCENT or not p95 <= GOAL_ANSWER_MS
    print(f"goals: CPU at most {GOAL_CPU_PERCENT:g} %, p95 at most {GOAL_ANSWER_MS:g} ms; {missed} missed")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
