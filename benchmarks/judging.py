"""Measure the CPU milliseconds of one judgement of a group's balance.

Usage: python benchmarks/judging.py [--repeat N]

Simulated groups of 2, 8 and 64 backends, sampled at 4 Hz, with windows of 60, 120 and 600 s: the best of N
judgements each, on tracks in memory; reading them from the store is measured separately. 8 backends over
120 s must cost less than 8 ms.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from sparktop.analysis.balance.judge import judge
from sparktop.analysis.balance.load_grid import GroupLoad, LoadTrack, load_track
from sparktop.model.series import HistoryTable, Series
from tests.analysis.balance.routed_load import Scene, cut, simulate

LIMIT_MS = 8.0
"""Limit for 8 backends and 120 s."""


def best_ms(work: Callable[[], object], repeat: int) -> float:
    """Return the CPU milliseconds of the cheapest of `repeat` calls."""
    best = math.inf
    for _ in range(repeat):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best * 1000


def stored(track: LoadTrack) -> dict[str, Series]:
    """Convert a track to series as the store has them."""
    table = HistoryTable(("running", "waiting", "tps"), capacity=4000)
    rows = zip(track.times_s, track.running, track.waiting or [], track.generation_tps or [], strict=True)
    for at, running, waiting, tps in rows:
        table.append(at, {"running": running, "waiting": waiting, "tps": None if math.isnan(tps) else tps})
    return table.series()


def main() -> int:
    """Measure all groups; return 1 if the one with a limit exceeds it, else 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeat", type=int, default=30)
    repeat = parser.parse_args().repeat
    worst = 0.0
    for backends, seconds in ((2, 60.0), (2, 120.0), (8, 120.0), (8, 600.0), (64, 120.0)):
        scene = Scene(
            "lag", 16 * backends, backends, "uniform", seconds / 8, 4.0, seconds + 5, 1, seconds / 40
        )
        seen = simulate(scene)
        tracks = [cut(track, 5.0, seconds + 5) for track in seen.tracks]
        load = GroupLoad("proxy", tracks, seconds / 8)
        cost = best_ms(lambda load=load, at=seconds + 5: judge(load, at), repeat)  # type: ignore[misc]  # bound now
        word = judge(load, seconds + 5).word
        print(f"{backends:>3} backends {seconds:>4.0f} s at 4 Hz: {cost:6.2f} ms  ({word})")
        if (backends, seconds) == (8, 120.0):
            series = [stored(track) for track in tracks]
            taken = best_ms(
                lambda series=series: [  # type: ignore[misc]  # bound now
                    load_track("a", one["running"], one["waiting"], one["tps"], since_s=5.0) for one in series
                ],
                repeat,
            )
            worst = cost
            print(f"{'':>12} of which taking the tracks from the store comes on top: {taken:.2f} ms")
    print(f"limit for 8 backends and 120 s: {LIMIT_MS:g} ms: {'kept' if worst < LIMIT_MS else 'BROKEN'}")
    return 0 if worst < LIMIT_MS else 1


if __name__ == "__main__":
    sys.exit(main())
