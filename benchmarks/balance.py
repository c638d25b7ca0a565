"""Measure how often a balance is judged wrongly: false alarms and detection on the simulated cluster.

Copies of the calibrated solo engine behind a router serve a closed loop of clients. Prompts have 64 tokens;
answers are so long that the life of a request (from start to end) is 2.5 to 30 s. Loads, tokens and lives are
judged every 5 s with hysteresis, as in the live program, from the first second on.

    false alarms  10 minutes of shuffle or round-robin: runs that ever announce "oscillating" or "starved";
                  the same with a changing number of requests: bursts of all clients, and clients that are
                  away for a quarter or three quarters of a life before each request
    detection     least-busy on counts that are 0.5 to 4 s old (late, or polled), or with failures that
                  make backends cool down, started all at once or one by one; detected if "oscillating"
                  is announced within 60 s or 8 lives, whichever is longer

Detection counts runs whose swing, net of chance, is at least half of the mean load. The swing is half of what
the backend that swings most goes both up and down in the median piece of 2.5 lives, so a cold burst, which
only falls, has none. Net of chance means that the variance of shuffle's swing in such pieces is subtracted.
(One row has the result for the 5 to 95 % range instead.) With fewer clients than backends, the idle limit,
there is nothing to judge. Each share has its exact 95 % interval (Clopper and Pearson).
Seeds below 600,000 were used while the rules were made; `--seed` is the first seed, by default beyond those.

usage: balance.py [--full] [--runs N] [--seed N] [--only calm|coming|herding] [--backends N ...] [--misses]
                  [--write]

Without --full, the grid is coarse. With --write, the tables are written to benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import comb
from pathlib import Path
from statistics import median

from balance_runs import HZ, Follower, Scene, announced, half_range, net_swing, simulate, there_and_back

from sparktop.model.balance import BalanceWord
from stage.load_trace import period_s

SWING = 0.5
"""Smallest swing that must be detected, as a fraction of the mean load."""
CALM_S = 600.0
LIVES_TO_FIND = 8
CLIENTS = (4, 8, 16, 32, 64, 128)
LIVES_S = (2.5, 4.0, 8.0, 15.0, 30.0)
LEAST_HERD = 4
"""Fewest clients per backend in herding runs: with fewer, chance moves as many."""
COMING_BACKENDS = (2, 3, 4, 8)
HELD_OUT = 600_000
HERE = Path(__file__).resolve().parent
MARKS = ("<!-- balance.py: begin -->", "<!-- balance.py: end -->")


@dataclass(frozen=True, slots=True)
class Grid:
    """Parameters of the runs, in all combinations."""

    backends: Sequence[int]
    lengths: Sequence[str]
    stale_s: Sequence[float]
    rates_hz: Sequence[int]
    calm_runs: int
    """Runs of each combination."""
    herding_runs: int


COARSE = Grid((2, 4, 8), ("fixed", "log-normal"), (1.0, 4.0), (1, 2, 4), 1, 1)
FULL = Grid(tuple(range(2, 9)), ("fixed", "uniform", "log-normal"), (0.5, 1.0, 2.0, 4.0), (1, 2, 4), 3, 2)


@dataclass(frozen=True, slots=True)
class Hunt:
    """A herding run whose swing is large enough, judged at one sampling rate."""

    scene: Scene
    hz: int
    life_s: float
    swing: float
    delay_s: float | None
    """Seconds until "oscillating" was announced; None if it was not in time."""
    called: BalanceWord
    """Word announced when the swing was detected, else at the time limit."""
    period_error: float | None
    """Relative error of the period announced then against the load's; None if either is missing."""
    spans: bool
    """Whether the run counts if the swing is the range of a piece, which makes a decay a swing too."""


def hunt(scene: Scene, rates_hz: Sequence[int]) -> list[Hunt]:
    """Run a herding scene and judge it at each sampling rate; return [] if its swing is too small."""
    seen = simulate(scene)
    life_s = seen.life_s(scene.seconds) or scene.life_s
    if LIVES_TO_FIND * life_s > scene.seconds:
        # Requests that crowd one backend live longer than under an even load: extend the run to their lives.
        seen = simulate(replace(scene, seconds=1.2 * LIVES_TO_FIND * life_s))
        life_s = seen.life_s(seen.tracks[0].times_s[-1]) or scene.life_s
    limit_s = min(seen.tracks[0].times_s[-1], max(60.0, LIVES_TO_FIND * life_s))
    swing = net_swing(scene, seen, life_s, limit_s, there_and_back)
    span = net_swing(scene, seen, life_s, limit_s, half_range)
    if max(swing, span) < SWING:
        return []
    loads = [
        [running + waiting for running, waiting in zip(track.running, track.waiting or [], strict=True)]
        for track in seen.tracks
    ]
    rows = [[int(load) for load in row] for row in zip(*loads, strict=True)]
    true_s = period_s(rows[int(2 * life_s * HZ) :], 1 / HZ)
    found: list[Hunt] = []
    for hz in rates_hz:
        delay_s, error = None, None
        for at, balance in Follower(seen.at_rate(hz)).follow(limit_s):
            if balance.word is BalanceWord.OSCILLATING:
                delay_s = at
                if true_s and balance.period_s:
                    error = abs(balance.period_s / true_s - 1)
                break
        found.append(Hunt(scene, hz, life_s, swing, delay_s, balance.word, error, span >= SWING))
    return found


def start(seed: int) -> tuple[float, bool]:
    """Draw (life of a request in seconds, whether all clients start at once)."""
    dice = random.Random(seed)  # noqa: S311 - repeatable chance, not secrets
    return dice.choice(LIVES_S), dice.random() < 0.5


def calm_scenes(grid: Grid, seed: int) -> Iterator[Scene]:
    """Yield the scenes of all calm runs."""
    serial = 0
    for backends, clients, lengths, policy in product(
        grid.backends, CLIENTS, grid.lengths, ("shuffle", "round-robin")
    ):
        for _ in range(grid.calm_runs if clients >= backends else 0):
            serial += 1
            life_s, cold = start(seed + serial)
            yield Scene(policy, clients, backends, lengths, life_s, CALM_S, seed + serial, cold=cold)


def coming_scenes(grid: Grid, seed: int) -> Iterator[Scene]:
    """Yield calm scenes in which the number of requests changes: bursts, and clients that are away."""
    serial = 0
    ways = ((True, 0.0), (False, 0.25), (False, 0.75))
    for backends, clients, lengths, policy, (bursts, away) in product(
        COMING_BACKENDS, CLIENTS, grid.lengths, ("shuffle", "round-robin"), ways
    ):
        for _ in range(grid.calm_runs if clients >= LEAST_HERD * backends else 0):
            serial += 1
            life_s, cold = start(seed + serial)
            scene = Scene(policy, clients, backends, lengths, life_s, CALM_S, seed + serial, cold=cold)
            yield replace(scene, bursts=bursts, away_lives=away)


def herding_scenes(grid: Grid, seed: int) -> Iterator[Scene]:
    """Yield the scenes of all herding runs, each long enough for its detection."""
    serial = 0
    ways = [(policy, stale_s) for policy in ("lag", "poll") for stale_s in grid.stale_s] + [("cooldown", 0.0)]
    for backends, clients, lengths, (policy, stale_s) in product(grid.backends, CLIENTS, grid.lengths, ways):
        for _ in range(grid.herding_runs if clients >= LEAST_HERD * backends else 0):
            serial += 1
            life_s, cold = start(seed + serial)
            seconds = 1.6 * max(60.0, LIVES_TO_FIND * life_s)
            yield Scene(policy, clients, backends, lengths, life_s, seconds, seed + serial, stale_s, cold)


def interval(hits: int, count: int) -> tuple[float, float]:
    """Return the exact 95 % interval of the share hits / count, by bisection of the binomial tails."""

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


def share(hits: int, count: int) -> str:
    """Return the share hits / count with its 95 % interval, in percent."""
    low, high = interval(hits, count)
    return f"{100 * hits / count:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def kind(lengths: str) -> str:
    """Return the table's word for a distribution of lengths."""
    return "fixed" if lengths == "fixed" else "variable"


def calm_table(scenes: Iterable[Scene], rates_hz: Sequence[int]) -> list[str]:
    """Run calm scenes; return a table with a row per combination of backends, clients and lengths."""
    cells: dict[str, list[set[int]]] = {}
    alarms: list[str] = []
    for scene in scenes:
        seen = simulate(scene)
        said = {hz: announced(seen.at_rate(hz), scene.seconds) for hz in rates_hz}
        name = f"{scene.backends} | {scene.clients} | {kind(scene.lengths)}"
        cells.setdefault(name, []).append({hz for hz, words in said.items() if words})
        alarms += [f"{hz} Hz {' and '.join(sorted(words))}: {scene}" for hz, words in said.items() if words]
        if any(said.values()):
            print(alarms[-1], file=sys.stderr, flush=True)
    heads = " | ".join(f"at {hz} Hz" for hz in rates_hz)
    lines = [
        f"| N | C | lengths | runs | {heads} | at any, % [95 %] |",
        "|---|---|---|---" + "|---" * (len(rates_hz) + 1) + "|",
    ]
    everything = [one for some in cells.values() for one in some]
    for name, some in {**cells, "all |  | ": everything}.items():
        counts = " | ".join(str(sum(hz in one for one in some)) for hz in rates_hz)
        lines.append(f"| {name} | {len(some)} | {counts} | {share(sum(map(bool, some)), len(some))} |")
    return lines


def herding_table(grid: Grid, seed: int, *, misses: bool) -> list[str]:
    """Run all herding scenes; return a table with a row per combination of backends, clients and lengths."""
    cells: dict[str, list[Hunt]] = {}
    for scene in herding_scenes(grid, seed):
        found = hunt(scene, grid.rates_hz)
        name = f"{scene.backends} | {scene.clients} | {kind(scene.lengths)}"
        if found:
            cells.setdefault(name, []).extend(found)
        for one in found:
            if misses and one.swing >= SWING and one.delay_s is None:
                print(f"missed at {one.hz} Hz, {one.called}, swing {one.swing:.2f}: {scene}", file=sys.stderr)
    heads = " | ".join(f"at {hz} Hz" for hz in grid.rates_hz)
    lines = [
        f"| N | C | lengths | swings | {heads} | found, % [95 %] | in lives | period off, % |",
        "|---|---|---|---" + "|---" * (len(grid.rates_hz) + 3) + "|",
    ]
    whole = [one for some in cells.values() for one in some]
    back = {name: [one for one in some if one.swing >= SWING] for name, some in cells.items()}
    back |= by_trait([one for some in back.values() for one in some])
    lines += [herding_row(name, some, grid.rates_hz) for name, some in back.items()]
    name = "all | if what only falls counts | "
    return [*lines, herding_row(name, [one for one in whole if one.spans], grid.rates_hz)]


def by_trait(hunts: Sequence[Hunt]) -> dict[str, list[Hunt]]:
    """Group the runs by router policy, by life and by clients per backend; return them by row heading."""
    found = {
        f"all | {policy} | ": [one for one in hunts if one.scene.policy == policy]
        for policy in ("lag", "poll", "cooldown")
    }
    for life_s in LIVES_S:
        found[f"all | life {life_s:g} s | "] = [one for one in hunts if one.scene.life_s == life_s]
    for least in (4, 8, 16):
        some = [one for one in hunts if one.scene.clients >= least * one.scene.backends]
        found[f"all | C ≥ {least} N | "] = some
    return found


def herding_row(name: str, hunts: Sequence[Hunt], rates_hz: Sequence[int]) -> str:
    """Return a row of the table; its interval is that of the runs judged at the middle sampling rate."""
    if not hunts:
        return f"| {name} | 0 |" + " – |" * (len(rates_hz) + 3)
    by_rate = [[one for one in hunts if one.hz == hz] for hz in rates_hz]
    counts = [sum(one.delay_s is not None for one in some) for some in by_rate]
    middle = len(rates_hz) // 2
    lives = [one.delay_s / one.life_s for one in hunts if one.delay_s is not None]
    errors = [one.period_error for one in hunts if one.period_error is not None]
    delay = f"{median(lives):.1f}" if lives else "–"
    off = f"{100 * median(errors):.0f}" if errors else "–"
    found = share(counts[middle], len(by_rate[middle]))
    return f"| {name} | {len(by_rate[0])} | {' | '.join(map(str, counts))} | {found} | {delay} | {off} |"


def write(lines: Sequence[str]) -> None:
    """Write the tables between their marks in the README."""
    readme = HERE / "README.md"
    before, _, rest = readme.read_text(encoding="utf-8").partition(MARKS[0])
    _, found, after = rest.partition(MARKS[1])
    if not found:
        raise SystemExit(f"{readme.name} lacks the lines {MARKS[0]} and {MARKS[1]}")
    middle = "\n".join(lines)
    readme.write_text(f"{before}{MARKS[0]}\n\n{middle}\n\n{MARKS[1]}{after}", encoding="utf-8")


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--runs", type=int, help="of each scene; 1, or with --full 3 calm and 2 herding ones")
    parser.add_argument("--seed", type=int, default=HELD_OUT)
    parser.add_argument("--only", choices=("calm", "coming", "herding"))
    parser.add_argument("--backends", type=int, nargs="+")
    parser.add_argument("--misses", action="store_true", help="name each run that was not found")
    parser.add_argument("--write", action="store_true")
    return parser.parse_args()


def main() -> int:
    """Run the requested studies and print a table for each."""
    given = parse()
    # The simulation's events form no reference cycles.
    gc.disable()
    grid = FULL if given.full else COARSE
    if given.backends:
        grid = replace(grid, backends=tuple(given.backends))
    if given.runs:
        grid = replace(grid, calm_runs=given.runs, herding_runs=given.runs)
    began = time.process_time()
    lines: list[str] = []
    if given.only in {None, "calm"}:
        calm = calm_table(calm_scenes(grid, given.seed), grid.rates_hz)
        lines += ["### False alarms", "", *calm, ""]
        print("\n".join(lines), flush=True)
    if given.only in {None, "coming"}:
        coming = calm_table(coming_scenes(grid, given.seed), grid.rates_hz)
        new = ["### False alarms where requests come and go", "", *coming, ""]
        lines += new
        print("\n".join(new), flush=True)
    if given.only in {None, "herding"}:
        new = ["### Detection", "", *herding_table(grid, given.seed, misses=given.misses)]
        lines += new
        print("\n".join(new))
    print(f"\n{time.process_time() - began:.0f} s of CPU")
    if given.write:
        write(lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
