"""Run llama-benchy, the tool that the community's tables were made with, on the truth server.

It has its own environment below the user's cache, a newly trained tokenizer, and a book from the truth
server, so that once installed it needs no network.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from truth import go_first

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
