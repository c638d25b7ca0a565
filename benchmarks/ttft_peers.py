"""Compare the TTFT of one real vLLM server in sparktop, llama-benchy and `vllm bench serve`, interleaved.

Each tool sends bursts of the same size, prompt and answer length, in rotating order, and reports its own mean
TTFT. The table also has the mean of the server's own histogram (`vllm:time_to_first_token_seconds`) over the
requests of exactly that call, the prompt tokens of a request and the share of them in the prefix cache. The
excess of a client's figure over the server's is the time in client, network and HTTP server together.
sparktop sends one request ahead of its bursts, to learn the length of its prompts: it is seen separately on
the server's page and subtracted.

usage: ttft_peers.py --server URL --tokenizer FOLDER [--vllm PYTHON] [--benchy PROGRAM]
                     [-c N] [--pp N] [--tg N] [--runs N] [--rounds N]

`scripts/real_stack.sh` installs and starts such a server; llama-benchy is installed with pip.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import secrets
import statistics
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from truth import TruthProcess

_CALL_S = 300.0
_VLLM_BENCH = """
import argparse, asyncio
from vllm.benchmarks.serve import add_cli_args, main_async
parser = argparse.ArgumentParser()
add_cli_args(parser)
asyncio.run(main_async(parser.parse_args()))
"""


@dataclass(frozen=True, slots=True)
class Load:
    """The load that every tool sends."""

    server: str
    """Base address without a path."""
    model: str
    tokenizer: Path
    concurrency: int
    prompt_tokens: int
    generated_tokens: int
    runs: int
    """Bursts per call."""


@dataclass(frozen=True, slots=True)
class Counters:
    """Sums on the server's page, of which differences are taken."""

    requests: float
    ttft_s: float
    prompt_tokens: float
    cached_tokens: float

    def less(self, other: Counters) -> Counters:
        """Return the difference of every sum from that of `other`."""
        return Counters(
            self.requests - other.requests,
            self.ttft_s - other.ttft_s,
            self.prompt_tokens - other.prompt_tokens,
            self.cached_tokens - other.cached_tokens,
        )


@dataclass(frozen=True, slots=True)
class Row:
    """The result of one call of a tool."""

    tool: str
    client_ms: float
    """Mean TTFT as the tool reports it."""
    server_ms: float
    """Mean of the server's histogram over the same requests."""
    requests: int
    prompt_tokens: float
    """Mean per request."""
    cached_percent: float
    """Percent of the prompt tokens that were in the prefix cache."""


def counters(server: str) -> Counters:
    """Read the sums on the server's page."""
    with urllib.request.urlopen(f"{server}/metrics", timeout=20) as answer:  # noqa: S310 - the user's server
        page = answer.read().decode()

    def total(pattern: str) -> float:
        return sum(float(value) for value in re.findall(rf"^{pattern} (\S+)$", page, re.MULTILINE))

    return Counters(
        requests=total(r"vllm:time_to_first_token_seconds_count\{[^}]*\}"),
        ttft_s=total(r"vllm:time_to_first_token_seconds_sum\{[^}]*\}"),
        prompt_tokens=total(r"vllm:prompt_tokens_total\{[^}]*\}"),
        cached_tokens=total(r"vllm:prefix_cache_hits_total\{[^}]*\}"),
    )


def call(command: Sequence[str], environment: dict[str, str] | None = None) -> str:
    """Run a program; return its standard output.

    Raises:
        RuntimeError: its exit code is neither 0 nor 1; the message has the end of its error stream.
    """
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_CALL_S, check=False, env=environment
    )
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{command[0]} exited with {done.returncode}: {done.stderr[-800:]}")
    return done.stdout


def sparktop_ms(load: Load) -> float:
    """Return the mean TTFT of sparktop's burst level in ms."""
    options = [
        "-c",
        str(load.concurrency),
        "--pp",
        str(load.prompt_tokens),
        "--tg",
        str(load.generated_tokens),
    ]
    options += ["--runs", str(load.runs), "--no-warm-up", "--yes", "--format", "json"]
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "XDG_STATE_HOME": home, "XDG_CONFIG_HOME": home}
        text = call([sys.executable, "-m", "sparktop", "sweep", load.server, *options], environment)
    level = json.loads(text)["targets"][0]["levels"][0]
    return float(level["ttft_ms"]["mean"])


def benchy_ms(load: Load, program: str, book: str, *, unique: bool) -> float:
    """Return llama-benchy's mean time from the call to the first token in ms."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        options = ["--base-url", f"{load.server}/v1", "--model", load.model]
        options += ["--tokenizer", str(load.tokenizer), "--book-url", f"{book}/book.txt", "--exact-tg"]
        options += ["--concurrency", str(load.concurrency), "--pp", str(load.prompt_tokens)]
        options += ["--tg", str(load.generated_tokens), "--runs", str(load.runs), "--latency-mode", "none"]
        options += ["--skip-coherence", "--no-warmup", "--no-adapt-prompt"]
        options += ["--no-cache"] if unique else []
        call([program, *options, "--save-result", str(result), "--format", "json"])
        level = json.loads(result.read_text(encoding="utf-8"))["benchmarks"][0]
    return statistics.fmean(level["e2e_ttft"]["values"])


def vllm_bench_ms(load: Load, python: str) -> float:
    """Return the mean TTFT of one burst of `vllm bench serve` in ms."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["--backend", "openai-chat", "--endpoint", "/v1/chat/completions", "--ignore-eos"]
        options += ["--base-url", load.server, "--model", load.model, "--tokenizer", str(load.tokenizer)]
        options += ["--dataset-name", "random", "--random-input-len", str(load.prompt_tokens)]
        options += ["--random-output-len", str(load.generated_tokens), "--num-warmups", "0"]
        options += ["--num-prompts", str(load.concurrency), "--max-concurrency", str(load.concurrency)]
        options += ["--ready-check-timeout-sec", "0", "--seed", str(secrets.randbelow(2**31))]
        options += ["--save-result", "--result-dir", folder, "--result-filename", "result.json"]
        call([python, "-c", _VLLM_BENCH, *options])
        return float(json.loads((Path(folder) / "result.json").read_text())["mean_ttft_ms"])


class Ahead(threading.Thread):
    """Waits for the single request ahead of the bursts, and stores the server's sums after it."""

    def __init__(self, server: str, before: Counters) -> None:
        """Watch the page of a server whose sums were `before`."""
        super().__init__(daemon=True)
        self._server, self._before = server, before
        self._ended = threading.Event()
        self.after: Counters | None = None

    def run(self) -> None:
        """Poll the page ten times per second until its number of requests has grown."""
        while not self._ended.wait(0.1):
            now = counters(self._server)
            if now.requests > self._before.requests:
                self.after = now if now.requests == self._before.requests + 1 else None
                return

    def end(self) -> Counters | None:
        """Stop; return the sums, None if the request was not seen alone."""
        self._ended.set()
        self.join()
        return self.after


def measure(tool: str, ask: Callable[[], float], load: Load) -> Row:
    """Run one tool; return its figure and the server's for the same requests.

    Raises:
        RuntimeError: the server saw another number of requests than were sent.
    """
    before = counters(load.server)
    ahead = Ahead(load.server, before) if tool == "sparktop" else None
    if ahead is not None:
        ahead.start()
    client_ms = ask()
    start = before if ahead is None else (ahead.end() or before)
    own = counters(load.server).less(start)
    if own.requests % load.concurrency:
        raise RuntimeError(f"{tool}: the server saw {own.requests:.0f} requests; is it asked by others too?")
    return Row(
        tool,
        client_ms,
        1e3 * own.ttft_s / own.requests,
        int(own.requests),
        own.prompt_tokens / own.requests,
        100.0 * own.cached_tokens / own.prompt_tokens,
    )


def report(rows: Sequence[Row]) -> str:
    """Return the Markdown table: a row per tool with means over its calls and their ranges."""
    lines = [
        "| tool | calls | requests | prompt | cached | client's TTFT ms | server's TTFT ms | difference ms |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for tool in dict.fromkeys(row.tool for row in rows):
        own = [row for row in rows if row.tool == tool]
        cells = [tool, str(len(own)), str(sum(row.requests for row in own))]
        cells.append(f"{statistics.fmean(row.prompt_tokens for row in own):.0f}")
        cells.append(f"{statistics.fmean(row.cached_percent for row in own):.0f} %")
        cells.extend(
            f"{statistics.fmean(values):.0f} ({min(values):.0f} to {max(values):.0f})"
            for values in ([row.client_ms for row in own], [row.server_ms for row in own])
        )
        over = [row.client_ms - row.server_ms for row in own]
        cells.append(f"{statistics.fmean(over):+.1f} ({min(over):+.1f} to {max(over):+.1f})")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="mean TTFT of three tools beside the server's own")
    parser.add_argument("--server", required=True, metavar="URL")
    parser.add_argument("--tokenizer", required=True, type=Path, metavar="FOLDER")
    parser.add_argument("--vllm", metavar="PYTHON", help="the interpreter of vLLM's environment")
    parser.add_argument("--benchy", metavar="PROGRAM", help="llama-benchy")
    parser.add_argument("--model", default="openai/gpt-oss-120b")
    parser.add_argument("-c", "--concurrency", type=int, default=4)
    parser.add_argument("--pp", type=int, default=512)
    parser.add_argument("--tg", type=int, default=32)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all tools in rotating order and print the table."""
    options = parsed(arguments)
    load = Load(
        server=options.server.rstrip("/"),
        model=options.model,
        tokenizer=options.tokenizer,
        concurrency=options.concurrency,
        prompt_tokens=options.pp,
        generated_tokens=options.tg,
        runs=options.runs,
    )
    rows: list[Row] = []
    with TruthProcess() as book:
        tools: list[tuple[str, Callable[[], float]]] = [("sparktop", lambda: sparktop_ms(load))]
        if options.benchy:
            for name, unique in (("llama-benchy", False), ("llama-benchy --no-cache", True)):
                tools.append((name, partial(benchy_ms, load, options.benchy, book.url, unique=unique)))
        if options.vllm:
            tools.append(("vllm bench serve", lambda: vllm_bench_ms(load, options.vllm)))
        for turn in range(options.rounds):
            for shift in range(len(tools)):
                tool, ask = tools[(turn + shift) % len(tools)]
                rows.append(measure(tool, ask, load))
                print(rows[-1], file=sys.stderr, flush=True)
    print(report(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
