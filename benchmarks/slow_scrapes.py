"""Measure false alarms and detection of the balance judge with a scrape every 1, 5, 15 and 30 s.

Simulated runs of a routed cluster (see balance_runs.py) with known truth: fair routers (shuffle, round-robin)
under a steady load, fair ones with a changing number of requests (bursts of all clients; clients that are
away), and least-busy on old counts whose load, at 4 Hz, spreads at least 4 times as widely as chance and by
half of its mean. Each backend is scraped at its own offset, as by Prometheus. At 1 s, the judge of the live
program is used; at slower scrapes, the judge of slow samples. Every minute from the sixth on is a window; the
shares are of windows. A second table has the verdicts on recorded traces of real servers behind a real
LiteLLM, at each scrape interval from eight offsets, every 5 s.

usage: slow_scrapes.py [--runs N] [--minutes M] [--traces] [--write]

With --traces, only the second table is made. With --write, the tables are written to benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

from balance_runs import ALARMS, HZ, Follower, Recording, Scene, simulate
from msgspec.structs import replace

from sparktop.analysis.balance.judge import (
    REQUESTS_S,
    judge,
    judge_slowly,
    spread_of,
)
from sparktop.analysis.balance.load_grid import GroupLoad, LoadTrack
from sparktop.model.balance import BalanceWord
from tests.analysis.balance.balance_traces import LIFE_S, trace

SCRAPES_S = (1, 5, 15, 30)
FIRST_S, EVERY_S = 360.0, 60.0
SHAPES = ((2, 16), (4, 32), (8, 64))
"""(backends, clients), with eight requests per backend."""
LIVES_S = (4.0, 12.0)
SEED = 710_000
README = Path(__file__).resolve().parent / "README.md"
MARKS = ("slow_scrapes.py", "slow_scrapes.py, traces")
"""Names of the marks around the two tables."""
BAD = tuple(word for word in BalanceWord if word.bad)
KINDS = ("fair, steady", "fair, comes and goes", "swings, 4 to 8 × chance", "swings, over 8 × chance")
OFFSETS = 8
LOOK_S = 5.0
"""Seconds between two judgements of a recorded trace."""
SHORTEST_S = 45.0
WIDE_Z, WIDE_SIZE, PLAIN_Z = 4.0, 0.5, 8.0
"""True spread, in units of chance and relative to the mean load, of a swing, and that of a clear one."""


@dataclass
class Counts:
    """The verdicts on windows."""

    said: list[frozenset[BalanceWord]] = field(default_factory=list)

    def share(self, *words: BalanceWord) -> str:
        """Return the share of windows with one of these verdicts, in percent."""
        found = sum(not one.isdisjoint(words) for one in self.said)
        return f"{100 * found / len(self.said):.1f} %" if self.said else "–"


def scenes(runs: int, seconds: float) -> Iterator[tuple[str, Scene]]:
    """Yield (kind, scene) of each run."""
    seed = SEED
    for (backends, clients), life_s, run in product(SHAPES, LIVES_S, range(runs)):
        for policy in ("shuffle", "round-robin"):
            seed += 1
            fair = Scene(policy, clients, backends, "log-normal", life_s, seconds, seed)
            yield KINDS[0], fair
            coming = (
                dataclasses.replace(fair, bursts=True)
                if run % 2
                else dataclasses.replace(fair, away_lives=0.75)
            )
            yield KINDS[1], dataclasses.replace(coming, seed=seed + 50_000)
        seed += 1
        for policy, stale_s in (("lag", 2.5), ("lag", 5.0), ("poll", 5.0), ("cooldown", 0.0)):
            yield KINDS[2], Scene(policy, clients, backends, "log-normal", life_s, seconds, seed, stale_s)


def scraped(seen: Recording, scrape_s: int) -> list[LoadTrack]:
    """Return the tracks as sampled by Prometheus: every `scrape_s`, each backend at its own offset."""
    every, count = scrape_s * HZ, len(seen.tracks)
    return [
        part(track, slice(round(index * every / count), None, every))
        for index, track in enumerate(seen.tracks)
    ]


def until(track: LoadTrack, at_s: float) -> LoadTrack:
    """Return the samples of a track that a judge uses at `at_s`."""
    first = sum(time < at_s - REQUESTS_S for time in track.times_s)
    return part(track, slice(first, sum(time <= at_s for time in track.times_s)))


def part(track: LoadTrack, taken: slice) -> LoadTrack:
    """Return these samples of a track."""
    return replace(
        track,
        times_s=track.times_s[taken],
        running=track.running[taken],
        waiting=(track.waiting or [])[taken],
        generation_tps=None,
        arrived=(track.arrived or [])[taken],
    )


def said_at(seen: Recording, scrape_s: int, seconds: float) -> Iterator[frozenset[BalanceWord]]:
    """Yield the set of verdicts on each window."""
    fast = Follower(seen.at_rate(1)) if scrape_s == 1 else None
    tracks = scraped(seen, scrape_s)
    at_s = FIRST_S
    while at_s <= seconds:
        if fast is not None:
            found = fast.judged(at_s)
        else:
            some = [until(track, at_s) for track in tracks]
            found = judge_slowly("proxy", some, at_s, float(scrape_s), "router")
        yield frozenset({found.word_now, *found.also})
        at_s += EVERY_S


def table(found: dict[tuple[str, int], Counts], runs: dict[str, int]) -> list[str]:
    """Return the table as lines of Markdown."""
    asked = (
        (KINDS[0], "false: a bad word", BAD),
        (KINDS[0], "*balanced*", (BalanceWord.BALANCED,)),
        (KINDS[1], "false: a bad word", BAD),
        *(
            (kind, title, words)
            for kind in KINDS[2:]
            for title, words in (
                ("found: *oscillating* or *starved*", tuple(ALARMS)),
                ("found: *uneven*", (BalanceWord.UNEVEN,)),
                ("missed: *balanced*", (BalanceWord.BALANCED,)),
                ("*unknown*", (BalanceWord.UNKNOWN,)),
            )
        ),
    )
    lines = [
        f"| runs | verdict on a window | {' | '.join(f'every {one} s' for one in SCRAPES_S)} |",
        f"|---|---|{'---:|' * len(SCRAPES_S)}",
    ]
    for kind, title, words in asked:
        cells = [found[kind, one].share(*words) for one in SCRAPES_S]
        lines.append(f"| {kind} ({runs[kind]}) | {title} | {' | '.join(cells)} |")
    windows = sum(len(found[kind, SCRAPES_S[0]].said) for kind in KINDS)
    return [*lines, "", f"{windows:,} windows at each pace."]


def taken(track: LoadTrack, every_s: float, offset_s: float) -> LoadTrack:
    """Return the first sample of a recorded track in each `every_s`, counted from `offset_s`."""
    places: dict[int, int] = {}
    for place, at_s in enumerate(track.times_s):
        if at_s >= offset_s:
            places.setdefault(int((at_s - offset_s) / every_s), place)
    kept = list(places.values())
    return replace(
        track,
        times_s=[track.times_s[place] for place in kept],
        running=[track.running[place] for place in kept],
        waiting=[(track.waiting or [])[place] for place in kept],
        generation_tps=[(track.generation_tps or [])[place] for place in kept],
    )


def said_of(name: str, scrape_s: float) -> Counter[BalanceWord]:
    """Count the verdicts on a recorded trace: from each offset, every 5 s."""
    said: Counter[BalanceWord] = Counter()
    pair = trace(name)
    for phase in range(OFFSETS):
        offset_s = phase * scrape_s / OFFSETS
        apart_s = scrape_s / 2 if scrape_s > 1 else 0.0
        first, second = (taken(pair[0], scrape_s, offset_s), taken(pair[1], scrape_s, offset_s + apart_s))
        at_s = SHORTEST_S
        while at_s <= pair[0].times_s[-1]:
            if scrape_s > 1:
                some = [replace(until(one, at_s), generation_tps=None) for one in (first, second)]
                found = judge_slowly("proxy", some, at_s, scrape_s, "router")
            else:
                found = judge(GroupLoad("proxy", (first, second), LIFE_S[name]), at_s)
            said[found.word_now] += 1
            at_s += LOOK_S
    return said


def measure(runs: int, minutes: float) -> list[str]:
    """Simulate and judge all runs; return their table as lines of Markdown."""
    seconds = minutes * 60
    found = {(kind, one): Counts() for kind, one in product(KINDS, SCRAPES_S)}
    counted: dict[str, int] = dict.fromkeys(KINDS, 0)
    for kind, scene in scenes(runs, seconds):
        seen = simulate(scene)
        truth = spread_of([part(one, slice(None)) for one in seen.tracks], 60.0, seconds)
        if kind == KINDS[2]:
            if truth is None or truth.z < WIDE_Z or truth.size < WIDE_SIZE:
                continue
            kind = KINDS[3] if truth.z >= PLAIN_Z else kind  # noqa: PLW2901 - known only after the run
        counted[kind] += 1
        for one in SCRAPES_S:
            found[kind, one].said.extend(said_at(seen, one, seconds))
        print(".", end="", file=sys.stderr, flush=True)
    return table(found, counted)


def recorded() -> list[str]:
    """Return the table of the recorded traces as lines of Markdown."""
    heads = " | ".join(f"every {one} s" for one in SCRAPES_S)
    lines = [f"| trace | {heads} |", f"|---|{'---|' * len(SCRAPES_S)}"]
    for name in LIFE_S:
        if trace(name)[0].times_s[-1] < SHORTEST_S:
            continue
        cells = []
        for scrape_s in SCRAPES_S:
            said = said_of(name, scrape_s)
            cells.append(
                ", ".join(
                    f"*{word}* {100 * count / said.total():.0f} %" for word, count in said.most_common()
                )
            )
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def written(lines: Sequence[str], name: str) -> None:
    """Write the table between the marks of that name."""
    begin, end = (f"<!-- {name}: {word} -->" for word in ("begin", "end"))
    text = README.read_text(encoding="utf-8")
    head, _, rest = text.partition(begin)
    _, _, tail = rest.partition(end)
    README.write_text("\n".join([f"{head}{begin}", *lines, f"{end}{tail}"]), encoding="utf-8")


def main() -> None:
    """Make the tables and print them; with --write, also write them to the README."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=12)
    parser.add_argument("--traces", action="store_true")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    tables = {MARKS[1]: recorded()}
    if not asked.traces:
        tables[MARKS[0]] = measure(asked.runs, asked.minutes)
    for name, lines in tables.items():
        print("\n".join(lines))
        if asked.write:
            written(lines, name)


if __name__ == "__main__":
    main()
