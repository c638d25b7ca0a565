"""Poll the node agent for minutes and check that its memory, descriptors and threads do not grow.

Starts an agent as a separate process and polls in turns: samples since the last one, the page for Prometheus,
and samples with the process table; every tenth poll uses a new connection. Exits 1 if a request failed or the
process grew.

usage: soak.py [--seconds 600] [--hz 10]
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import itertools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

MOST_GROWTH_BYTES = 1 << 20
"""Largest allowed growth of memory between the first and the last fifth of the readings after the warm-up. A
leak of 200 bytes per poll shows in ten minutes."""
WARM_UP_SHARE, LONGEST_WARM_UP_S = 0.25, 90.0
"""Length of the warm-up, as a fraction of the run and at most in seconds: the first minute fills the samples
that the agent keeps for clients that missed some."""
SHARES = 5
FRESH_EVERY = 10
PATHS = ("/v1/sample?interval_s=0.25&since={since}", "/metrics", "/v1/sample?processes=1&since={since}")
END_S = 10.0


@dataclass(frozen=True, slots=True)
class Reading:
    """Resources that the process held `at` seconds after the start of the run."""

    at: float
    rss_bytes: int
    descriptors: int
    threads: int


@dataclass(slots=True)
class Run:
    """The polls of a run and the readings of the process."""

    readings: list[Reading] = field(default_factory=list)
    polls: int = 0
    samples: int = 0
    failed: list[str] = field(default_factory=list)
    latencies_ms: list[float] = field(default_factory=list)


@contextlib.contextmanager
def agent() -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Start an agent on a free port; yield (process, port).

    The agent is terminated at the end of the block, and must have ended within `END_S` seconds.
    """
    command = [sys.executable, "-m", "sparktop", "agent", "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        line = process.stderr.readline() if process.stderr is not None else ""
        if "http://127.0.0.1:" not in line:
            raise SystemExit(f"the agent did not start: {line}")
        yield process, int(line.partition("http://127.0.0.1:")[2].partition(":")[0])
    finally:
        process.terminate()
        try:
            process.communicate(timeout=END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise


def read(pid: int, at: float) -> Reading:
    """Read the resources of the process `pid` from /proc."""
    folder = Path(f"/proc/{pid}")
    status = dict(line.split(":", 1) for line in (folder / "status").read_text(encoding="utf-8").splitlines())
    rss_bytes = int(status["VmRSS"].split()[0]) * 1024
    return Reading(at, rss_bytes, len(list((folder / "fd").iterdir())), int(status["Threads"]))


def poll(client: http.client.HTTPConnection, path: str) -> tuple[int, bytes]:
    """Send one GET request; return (status, body)."""
    client.request("GET", path)
    response = client.getresponse()
    return response.status, response.read()


def soak(pid: int, port: int, seconds: float, hz: float, clock: Callable[[], float] = time.monotonic) -> Run:
    """Poll the agent `hz` times per second for `seconds`; record failed requests and go on."""
    run = Run()
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    began, since = clock(), 0.0
    for number, path in zip(itertools.count(), itertools.cycle(PATHS), strict=False):
        due = began + number / hz
        if due - began > seconds:
            break
        time.sleep(max(0.0, due - clock()))
        if number % FRESH_EVERY == 0:
            client.close()
        asked = clock()
        try:
            status, body = poll(client, path.format(since=since))
        except OSError as error:
            status, body = 0, str(error).encode()
            client.close()
        run.latencies_ms.append((clock() - asked) * 1e3)
        run.polls += 1
        if status != http.client.OK:
            run.failed.append(f"{path}: {status} {body[:100]!r}")
        elif path.startswith("/v1/sample"):
            samples = json.loads(body)["samples"]
            run.samples += len(samples)
            since = samples[-1]["at"] if samples else since
        if number % round(hz) == 0:
            run.readings.append(read(pid, clock() - began))
    client.close()
    return run


def judge(run: Run, seconds: float) -> tuple[list[str], list[str]]:
    """Return (lines with the figures, faults found in them)."""
    warm = min(seconds * WARM_UP_SHARE, LONGEST_WARM_UP_S)
    kept = [one for one in run.readings if one.at >= warm]
    share = max(1, len(kept) // SHARES)
    first, last = kept[:share], kept[-share:]

    def between(value: Callable[[Reading], float]) -> tuple[float, float]:
        return statistics.median(map(value, first)), statistics.median(map(value, last))

    rss = between(lambda one: one.rss_bytes)
    descriptors, threads = between(lambda one: one.descriptors), between(lambda one: one.threads)
    slope = statistics.linear_regression([one.at for one in kept], [one.rss_bytes for one in kept]).slope
    took = sorted(run.latencies_ms)
    median, late, last_ms = statistics.median(took), took[-1 - len(took) // 100], took[-1]
    figures = [
        f"{run.polls} polls in {seconds:.0f} s, {len(run.failed)} failed, {run.samples} samples received",
        f"memory {rss[0] / 1e6:.2f} -> {rss[1] / 1e6:.2f} MB, {slope * 60 / 1e3:+.1f} kB a minute",
        f"descriptors {descriptors[0]:.0f} -> {descriptors[1]:.0f}",
        f"threads {threads[0]:.0f} -> {threads[1]:.0f}",
        f"answers in {median:.2f} ms (median), {late:.2f} ms (p99), {last_ms:.2f} ms (most)",
    ]
    wrong = run.failed[:3]
    if rss[1] - rss[0] > MOST_GROWTH_BYTES:
        wrong.append(f"memory grew by {(rss[1] - rss[0]) / 1e6:.2f} MB")
    if descriptors[1] > descriptors[0]:
        wrong.append(f"descriptors grew from {descriptors[0]:.0f} to {descriptors[1]:.0f}")
    if threads[1] > threads[0]:
        wrong.append(f"threads grew from {threads[0]:.0f} to {threads[1]:.0f}")
    if run.samples < seconds:
        wrong.append(f"only {run.samples} samples in {seconds:.0f} s")
    return figures, wrong


def main() -> int:
    """Soak the agent and print the figures; return 1 if a fault was found, else 0."""
    parser = argparse.ArgumentParser(prog="soak.py", description=(__doc__ or "").split("\n\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--hz", type=float, default=10.0)
    options = parser.parse_args()
    with agent() as (process, port):
        run = soak(process.pid, port, options.seconds, options.hz)
    if process.returncode != 0:
        run.failed.append(f"the agent ended with {process.returncode}")
    figures, wrong = judge(run, options.seconds)
    print("\n".join(figures))
    print("soak: " + ("; ".join(wrong) or "as it was"))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
