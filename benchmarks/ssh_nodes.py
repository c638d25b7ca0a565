"""Measure the cost of a node over ssh: of the reader that is sent to it, beside the agent installed there.

A real sshd runs on 127.0.0.1. The ways connect in turns, several times each. CPU time and memory are those of
the remote process, from its start. The driver is the tests' C library, which answers as that of a GB10.

usage: ssh_nodes.py [--rounds 7] [--samples 20]
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from sparktop.model.targets import NodeTarget
from sparktop.sources.ssh.bundle import reader_bundle
from sparktop.sources.ssh.connector import Connector
from tests.nvml_shim import shim_states
from tests.sources.ssh.sshd import Sshd, sshd

TARGET = NodeTarget("n", "ssh", ssh="spark")
SPARKTOP = str(Path(sys.executable).with_name("sparktop"))
SHIM = Path(__file__).resolve().parent.parent / "tests" / "nvml_shim" / "libnvidia_ml.c"
INTERVAL_S = 0.25


@dataclass(slots=True)
class Way:
    """One way to read the node, and its measurements."""

    name: str
    target: NodeTarget
    options: tuple[str, ...]
    hello_s: list[float] = field(default_factory=list)
    hello_cpu_s: list[float] = field(default_factory=list)
    first_cpu_s: list[float] = field(default_factory=list)
    sample_cpu_ms: list[float] = field(default_factory=list)
    rss_mb: list[float] = field(default_factory=list)


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of all threads of a process so far."""
    clock = ctypes.c_int()
    if ctypes.CDLL(None).clock_getcpuclockid(pid, ctypes.byref(clock)):
        raise RuntimeError(f"process {pid} has ended")
    return time.clock_gettime(clock.value)


def rss_mb(pid: int) -> float:
    """Return the resident memory of a process in MB."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    line = next(one for one in status.splitlines() if one.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024 / 1e6


async def measure(way: Way, written_pid: Callable[[], int], samples: int) -> None:
    """Connect once, read `samples` samples, and record the cost of each part.

    `written_pid` returns the id of the remote process once it has started.
    """
    began = time.monotonic()
    link = await Connector(way.target, "ssh", way.options).connect()
    way.hello_s.append(time.monotonic() - began)
    pid = written_pid()
    way.hello_cpu_s.append(cpu_s(pid))
    since = None
    try:
        for index in range(samples + 1):
            reply, _ = await link.ask(since, processes=False, interval_s=INTERVAL_S, clock=time.monotonic)
            since = reply.samples[-1].at if reply.samples else since
            if index == 0:
                way.first_cpu_s.append(cpu_s(pid))
            await asyncio.sleep(INTERVAL_S)
        way.sample_cpu_ms.append((cpu_s(pid) - way.first_cpu_s[-1]) / samples * 1e3)
        way.rss_mb.append(rss_mb(pid))
    finally:
        await link.close()


def ways(server: Sshd, folder: Path) -> list[Way]:
    """Return the ways to compare; compile the shim into `folder`."""
    command = ["cc", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", "-o"]
    subprocess.run([*command, str(folder / "libnvidia-ml.so.1"), str(SHIM)], check=True, timeout=60)
    state = folder / "state"
    state.write_text(shim_states.gb10(), encoding="utf-8")
    pid = f"echo $$ > {shlex.quote(str(folder / 'pid'))}; "
    driver = f"export LD_LIBRARY_PATH={shlex.quote(str(folder))} NVML_SHIM_STATE={shlex.quote(str(state))}; "
    asked = 'exec sh -c "$SSH_ORIGINAL_COMMAND"'
    installed = replace(TARGET, command=SPARKTOP, ssh_bundle=False)
    return [
        Way("reader sent, no driver", TARGET, server.forced("sent", pid + asked)),
        Way("installed agent, no driver", installed, server.forced("installed", pid + asked)),
        Way("reader sent, GB10", TARGET, server.forced("sent-gpu", pid + driver + asked)),
        Way("installed agent, GB10", installed, server.forced("installed-gpu", pid + driver + asked)),
    ]


def bare_ssh_s(server: Sshd) -> float:
    """Return the seconds that ssh takes for a command that does nothing."""
    began = time.monotonic()
    subprocess.run(["ssh", *server.options(), "spark", "true"], check=True, timeout=60)
    return time.monotonic() - began


async def compare(server: Sshd, folder: Path, rounds: int, samples: int) -> None:
    """Measure all ways in turn and print the table."""
    bare: list[float] = []
    compared = ways(server, folder)
    for _ in range(rounds):
        bare.append(bare_ssh_s(server))
        for way in compared:
            await measure(way, lambda: int((folder / "pid").read_text(encoding="utf-8")), samples)
    print(f"medians of {rounds} connections; ssh alone {statistics.median(bare):.2f} s; ", end="")
    print(f"{len(reader_bundle().data) / 1e3:.0f} kB sent\n")
    print("| | hello, wall s | CPU s until hello | CPU s until the first sample | CPU ms a sample | RSS MB |")
    print("|---|---|---|---|---|---|")
    for way in compared:
        figures = (way.hello_s, way.hello_cpu_s, way.first_cpu_s)
        seconds = " | ".join(f"{statistics.median(one):.2f}" for one in figures)
        rest = f"{statistics.median(way.sample_cpu_ms):.1f} | {statistics.median(way.rss_mb):.1f}"
        print(f"| {way.name} | {seconds} | {rest} |")


def main() -> int:
    """Measure all ways and print the table."""
    parser = argparse.ArgumentParser(prog="ssh_nodes.py", description=(__doc__ or "").split("\n\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=7, help="connections of each way")
    parser.add_argument("--samples", type=int, default=20, help="samples of each connection")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "sshd").mkdir()
        with sshd(folder / "sshd") as server:
            asyncio.run(compare(server, folder, options.rounds, options.samples))
    return 0


if __name__ == "__main__":
    sys.exit(main())
