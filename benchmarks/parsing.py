"""Measure the time to parse one metrics page of vLLM 0.32, beside prometheus_client in the same run.

    python benchmarks/parsing.py [ROUNDS]

Every round measures each way once, in turn, so that a slow moment of the machine affects all of them; judge
the ratios. Exits 1 if sparktop takes more than the share `GOAL` of prometheus_client's time.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from sparktop.engines import read_page
from sparktop.engines.vllm import NAMES

PAGE = Path(__file__).parent.parent / "tests" / "data" / "vllm-0.32" / "t018.prom"
GOAL = 1.5 / 8.0
"""Sparktop may take 1.5 ms for the page where prometheus_client takes 8.0 ms."""


def whole_page(body: bytes) -> int:
    """Parse every sample of the page with prometheus_client; return their number."""
    return sum(len(family.samples) for family in text_string_to_metric_families(body.decode()))


def wanted_lines(body: bytes) -> int:
    """Parse only the lines with samples that sparktop reads with prometheus_client; return their number."""
    lines = body.decode().split("\n")
    wanted = [line for line in lines if line.partition("{")[0].partition(" ")[0] in NAMES]
    return sum(len(family.samples) for family in text_string_to_metric_families("\n".join(wanted)))


def ours(body: bytes) -> int:
    """Parse the page into an `EngineSample`; return the number of its lanes."""
    return len(read_page(body, at=0.0).lanes)


def measure(rounds: int) -> dict[str, list[float]]:
    """Return the milliseconds of each way, one value per round."""
    body = PAGE.read_bytes()
    took: dict[str, list[float]] = {}

    def once(name: str, way: Callable[[bytes], int], page: bytes) -> None:
        start = time.perf_counter()
        way(page)
        took.setdefault(name, []).append((time.perf_counter() - start) * 1000)

    for number in range(rounds):
        once("prometheus_client, whole page", whole_page, body)
        once("prometheus_client, wanted lines", wanted_lines, body)
        once("ours, a server's first page", ours, body.replace(b"gpt-oss-120b", b"model-%d" % number))
        once("ours, its next pages", ours, body)
    return took


def main() -> int:
    """Print the table; return 1 if the goal is missed, else 0."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    took = measure(rounds)
    medians = {name: statistics.median(values) for name, values in took.items()}
    whole = medians["prometheus_client, whole page"]
    print(f"{PAGE.name}: {PAGE.stat().st_size:,} bytes, {rounds} rounds\n")
    print(f"{'':34}{'median ms':>10}{'best ms':>10}{'of whole page':>15}{'faster':>9}")
    for name, median in medians.items():
        best, share = min(took[name]), median / whole
        print(f"{name:34}{median:10.3f}{best:10.3f}{share:14.1%} {whole / median:7.1f}x")
    slowest = max(median for name, median in medians.items() if name.startswith("ours"))
    met = slowest / whole < GOAL
    print(f"\ngoal: under {GOAL:.1%} of prometheus_client's whole page: {'met' if met else 'MISSED'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
