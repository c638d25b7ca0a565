"""What watching a fleet costs: servers with the whole page of a real vLLM, one look a second, one viewer.

For each number of servers: CPU time of sparktop alone in each view (200x50 pseudo-terminal), its memory at
the start and at the end, the time until figures of servers are on the screen, and the 95th percentile of the
time from a key to the first byte of its answer. `record` beside it shows what remains without a screen. On a
busy machine polls are late and CPU time is missing: pages/s shows it, and CPU time per page stays comparable.

usage: fleet.py [--servers 2,20,100] [--seconds 20] [--presses 30] [--dead N] [--mute N]
"""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from fleet_servers import POLLS
from ptybench import PtyProgram

COLUMNS, ROWS = 200, 50
WARM_UP_S = 10.0
FIRST_WITHIN_S = 60.0
SERVERS = Path(__file__).with_name("fleet_servers.py")
VIEWS = ("overview", "compact", "wall")


@contextmanager
def configured(count: int, dead: int, mute: int) -> Iterator[Path]:
    """Serve so many servers and yield the configuration file that names them."""
    words = [sys.executable, str(SERVERS), str(count), str(dead), str(mute)]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process,
    ):
        ports = json.loads(process.stdout.readline() if process.stdout is not None else b"[]")
        config = Path(folder) / "sparktop.toml"
        tables = [
            f'[[backends]]\nname = "s{number:03d}"\nurl = "http://127.0.0.1:{port}"\nengine = "vllm"\n'
            for number, port in enumerate(ports)
        ]
        config.write_text("\n".join(tables), encoding="utf-8")
        try:
            yield config
        finally:
            process.terminate()


def pages_sent(config: Path) -> int:
    """Return how many pages the servers have sent so far."""
    url = re.findall(r'url = "(.*)"', config.read_text(encoding="utf-8"))[0]
    with urllib.request.urlopen(f"{url}{POLLS}") as answer:  # noqa: S310 - a server of this benchmark
        return int(answer.read())


def per_page(cpu_percent: float, pages: int, seconds: float) -> tuple[str, str]:
    """Return the cells for pages a second and for CPU time a page."""
    return f"{pages / seconds:.0f}", f"{10_000 * cpu_percent * seconds / pages:.0f}" if pages else "–"


def on_screen(config: Path, seconds: float, presses: int) -> Iterator[tuple[str, ...]]:
    """Yield the cells of a row for each view."""
    command = (sys.executable, "-m", "sparktop", "--config", str(config))
    env = {"XDG_STATE_HOME": str(config.parent / "state"), "XDG_DATA_HOME": str(config.parent / "data")}
    with PtyProgram(command, columns=COLUMNS, rows=ROWS, env=env) as program:
        first_s = program.wait_for(["tok/s", "model-000"], FIRST_WITHIN_S)
        program.idle(WARM_UP_S)
        for view in VIEWS:
            before = pages_sent(config)
            window = program.measure(seconds)
            pages = pages_sent(config) - before
            answers = []
            for _ in range(presses):
                program.idle(random.uniform(0.02, 0.25))  # noqa: S311 - not a secret, only odd moments
                took = program.press("\x1b[B")
                if took is not None:
                    answers.append(1000 * took)
            p95 = statistics.quantiles(answers, n=20)[-1] if len(answers) > 1 else float("nan")
            memory = f"{window.rss_start_mib:.0f} → {window.rss_end_mib:.0f}"
            first = "–" if first_s is None or view != VIEWS[0] else f"{first_s:.1f}"
            yield (
                view,
                f"{window.cpu_percent:.1f}",
                *per_page(window.cpu_percent, pages, window.seconds),
                f"{window.bytes_per_s / 1000:.1f}",
                memory,
                first,
                f"{p95:.0f}",
            )
            program.press("v")
            program.idle(2.0)


def headless(config: Path, seconds: float) -> tuple[str, ...]:
    """Return the cells of a row for `sparktop record`."""
    out = config.parent / "fleet.sparktop"
    words = [sys.executable, "-m", "sparktop", "record", "--config", str(config), "-o", str(out)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        one = psutil.Process(process.pid)
        time.sleep(WARM_UP_S)
        before, began, rss = one.cpu_times(), time.monotonic(), one.memory_info().rss
        sent = pages_sent(config)
        time.sleep(seconds)
        after, took = one.cpu_times(), time.monotonic() - began
        sent = pages_sent(config) - sent
        memory = f"{rss / 2**20:.0f} → {one.memory_info().rss / 2**20:.0f}"
        process.terminate()
    percent = 100 * (after.user + after.system - before.user - before.system) / took
    return "record", f"{percent:.1f}", *per_page(percent, sent, took), "–", memory, "–", "–"


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--servers", default="2,20,100")
    parser.add_argument("--dead", type=int, default=0, help="so many of the servers do not listen")
    parser.add_argument("--mute", type=int, default=0, help="so many accept and never answer")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--presses", type=int, default=30)
    options = parser.parse_args()
    print(
        "| servers | view | CPU, % of a core | pages/s | CPU a page, µs | kB/s | memory, MiB"
        " | first figures, s | key, p95 ms |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for count in (int(word) for word in options.servers.split(",")):
        with configured(count, options.dead, options.mute) as config:
            for row in (
                *on_screen(config, options.seconds, options.presses),
                headless(config, options.seconds),
            ):
                print(f"| {count} | {' | '.join(row)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
