"""How often a balance is judged wrongly: false alarms and detection over a grid of simulated routers.

Usage: python benchmarks/balance_study.py [--runs N] [--full] [--detect] [--backends N ...]

False alarms: 10-minute runs of random and round-robin routing, judged every 5 s with hysteresis as the
live program does; one that ever announces "oscillating" or "starved" counts. Detection: least-busy on stale
counts, whose load swings by half of the mean load and more (half of the 5 to 95 % range); found when
"oscillating" is announced within 60 s or 8 lifetimes, whichever is longer. With few requests random routing
swings as much, so the weaker swings stand apart.
Each share stands with its exact 95 % interval (Clopper and Pearson).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from itertools import product
from math import comb
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from sparktop.model.balance import BalanceWord
from tests.analysis.routed_load import Recording, Scene, follow, simulate

ALARMS = {BalanceWord.OSCILLATING, BalanceWord.STARVED}
LIVES_S = (2.5, 4.0, 8.0, 15.0, 30.0)
CLIENTS = (4, 8, 16, 32, 64, 128)
LENGTHS = ("fixed", "uniform", "log-normal")


def interval(hits: int, count: int) -> tuple[float, float]:
    """Give the exact 95 % interval of a share, by bisection of the binomial tails."""

    def tail(share: float, first: int, last: int) -> float:
        return sum(comb(count, k) * share**k * (1 - share) ** (count - k) for k in range(first, last + 1))

    def solve(first: int, last: int, *, rising: bool) -> float:
        low, high = 0.0, 1.0
        for _ in range(50):
            middle = (low + high) / 2
            if (tail(middle, first, last) < 0.025) == rising:
                low = middle
            else:
                high = middle
        return low

    return (
        0.0 if hits == 0 else solve(hits, count, rising=True),
        1.0 if hits == count else solve(0, hits, rising=False),
    )


def row(name: str, hits: int, count: int) -> str:
    """Give one line of the table."""
    low, high = interval(hits, count)
    return (
        f"{name:<46} {hits:>5} of {count:<5} {100 * hits / count:6.2f} %  [{100 * low:.2f}, {100 * high:.2f}]"
    )


def swing(seen: Recording, begin_s: float) -> float:
    """Give half of the 5 to 95 % range of the backend that swings most, over the mean load."""
    ranges, whole = [], 0.0
    for track in seen.tracks:
        loads = sorted(x for t, x in zip(track.times_s, track.running, strict=True) if t >= begin_s)
        ranges.append((loads[int(0.95 * len(loads))] - loads[int(0.05 * len(loads))]) / 2)
        whole += sum(loads) / len(loads)
    return max(ranges) * len(seen.tracks) / whole


def calm_scenes(backends: list[int], rates: tuple[float, ...], runs: int) -> Iterator[tuple[str, Scene]]:
    """Give all runs of random and round-robin routing, each with its cell's name."""
    for policy, count, clients, lengths, hz in product(
        ("shuffle", "round-robin"), backends, CLIENTS, LENGTHS, rates
    ):
        if clients >= count:
            for seed in range(runs):
                cell = f"{policy} n={count} c={clients} {lengths} {hz:g} Hz"
                life = LIVES_S[seed % len(LIVES_S)]
                yield (
                    cell,
                    Scene(
                        policy=policy,
                        servers=count,
                        clients=clients,
                        lengths=lengths,
                        hz=hz,
                        life_s=life,
                        seed=seed,
                    ),
                )


def false_alarms(backends: list[int], rates: tuple[float, ...], runs: int) -> None:
    """Print the share of calm runs with an alarm: by cell where there was one, and in all."""
    said: dict[str, Counter[str]] = {}
    for cell, scene in calm_scenes(backends, rates, runs):
        seen = simulate(scene)
        words = {step.balance.word for step in follow(seen.tracks, seen.e2e_s)}
        counts = said.setdefault(cell, Counter())
        counts["runs"] += 1
        counts["alarm"] += bool(words & ALARMS)
        for word in words:
            counts[word] += 1
        if words & ALARMS:
            print(
                f"  alarm: {cell} life {scene.life_s:g} s seed {scene.seed}: {sorted(words & ALARMS)}",
                flush=True,
            )
    for key in ("shuffle", "round-robin"):
        for count in backends:
            for clients in CLIENTS:
                mine = [c for cell, c in said.items() if cell.startswith(f"{key} n={count} c={clients} ")]
                if mine:
                    runs_in_all = sum(c["runs"] for c in mine)
                    print(row(f"{key} n={count} c={clients}", sum(c["alarm"] for c in mine), runs_in_all))
    whole = sum(said.values(), Counter[str]())
    print(row("all calm runs", whole["alarm"], whole["runs"]), dict(whole))
    print(f"cells with an alarm: {sum(c['alarm'] > 0 for c in said.values())} of {len(said)}", flush=True)


def detection(backends: list[int], rates: tuple[float, ...], runs: int) -> None:
    """Print the share of herding runs that were found in time, by clients and strength of the swing."""
    found: dict[tuple[int, int, str], list[int]] = {}
    for count, clients, policy, stale, lengths, hz in product(
        backends, CLIENTS[1:], ("lag", "poll"), (0.5, 1.0, 2.0, 4.0), LENGTHS, rates
    ):
        for seed in range(runs if clients >= 3 * count else 0):
            life = LIVES_S[seed % len(LIVES_S)]
            scene = Scene(policy, clients, count, lengths, life, hz, max(60.0, 8 * life) * 1.3, seed, stale)
            seen = simulate(scene)
            limit = max(60.0, 8 * seen.e2e_s)
            width = swing(seen, min(limit / 2, 2 * life))
            band = "0.5-0.7" if width < 0.7 else "0.7 and more"
            if width >= 0.5:
                steps = follow(seen.tracks, seen.e2e_s)
                hit = any(
                    step.balance.word is BalanceWord.OSCILLATING for step in steps if step.at_s <= limit
                )
                found.setdefault((count, clients, band), []).append(hit)
    for (count, clients, band), hits in sorted(found.items()):
        print(row(f"herding n={count} c={clients} swing {band}", sum(hits), len(hits)))
    for floor in (8, 16, 32):
        hits = [hit for (_, clients, _), some in found.items() if clients >= floor for hit in some]
        if hits:
            print(row(f"herding c >= {floor}, all swings", sum(hits), len(hits)), flush=True)


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=5, help="of each cell")
    parser.add_argument("--full", action="store_true", help="at 1, 2 and 4 Hz instead of 2 Hz")
    parser.add_argument("--detect", action="store_true", help="detection instead of false alarms")
    parser.add_argument("--backends", type=int, nargs="+", default=[2])
    given = parser.parse_args()
    rates = (1.0, 2.0, 4.0) if given.full else (2.0,)
    start = time.perf_counter()
    (detection if given.detect else false_alarms)(given.backends, rates, given.runs)
    print(f"{time.perf_counter() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
