"""Measure what an hour of watching keeps in memory, in virtual time: two servers and two machines at 4 Hz.

The real store and the pictures for going back in time are filled as the screen fills them, without a
terminal and without sockets; what only old pictures need is moved to temporary files each minute, as the
flight recorder's thread does. Printed is the resident memory of this process, the simulation included.
With `--servers`, it is that of servers polled once a second instead, each with a whole page of a real vLLM
in which every counter moves (`fleet_servers.py`).

usage: remembering.py [--minutes 60] [--servers N] [--in-memory] [--trace]
"""

from __future__ import annotations

import argparse
import gc
import math
import sys
import tempfile
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
from fleet_servers import pages_of

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from sparktop.engines import read_page
from sparktop.engines.exposition import PageMemory
from sparktop.model.targets import BackendTarget, Watch
from sparktop.recording.past import Past, Spool
from sparktop.store import SourceKey, Store
from sparktop.watch.monitor import return_memory
from stage.rehearsal import Rehearsal

_HZ = 4
_ANSWER_S, _DRAWN_S = 0.012, 0.09
_EVERY_MIN = 5
_LINES = 15


class Fast(Rehearsal):
    """A rehearsal that is polled four times a second, and drawn after each poll."""

    def quarter(self, number: int, past: Past) -> None:
        """Poll and keep a picture at the quarter second `number`; nodes every second time."""
        self._now_s = number / _HZ + _ANSWER_S
        self._time.run(self._now_s)
        for index, target in enumerate(self.watch.backends):
            self._poll(index, target)
        if number % 2 == 0:
            for node, reader in zip(self.watch.nodes, self._readers, strict=True):
                self.store.accept(SourceKey.node(node.name), reader.look(), 1.4)
        if number % _HZ == 0:
            self.store.judge()
        self._now_s = number / _HZ + _DRAWN_S
        past.add(self.store.snapshot())


def few(past: Past) -> Callable[[int], None]:
    """Return a function that plays one minute of two servers and two machines at 4 Hz."""
    rehearsal = Fast(backends=2, nodes=2, seed=0)
    rehearsal.store.set_interval(1 / _HZ)

    def play(minute: int) -> None:
        for number in range((minute - 1) * 60 * _HZ + 1, minute * 60 * _HZ + 1):
            rehearsal.quarter(number, past)

    return play


class Fleet:
    """Servers that are polled once a second, spread over the second."""

    def __init__(self, count: int, past: Past) -> None:
        self._now_s = 0.0
        targets = [BackendTarget(f"s{one:03d}", f"http://10.0.0.1:{8000 + one}") for one in range(count)]
        self._store = Store(Watch(backends=tuple(targets)), clock=lambda: self._now_s)
        self._keys = [SourceKey.backend(one.name) for one in targets]
        self._pages = pages_of(count)
        self._memories = [PageMemory() for _ in targets]
        self._past = past

    def play(self, minute: int) -> None:
        """Play one minute."""
        for second in range((minute - 1) * 60, minute * 60):
            for place, (key, page) in enumerate(zip(self._keys, self._pages, strict=True)):
                self._now_s = second + place / len(self._keys)
                load = 0.6 + 0.6 * math.sin(2 * math.pi * second / (20 + place % 70) + 2.4 * place)
                body = page.at(1.0 + 0.02 * second, max(0.0, load))
                sample = read_page(body, at=self._now_s, answer_ms=1.0, memory=self._memories[place])
                self._store.accept(key, sample, 1.5)
            self._now_s = second + 0.99
            self._store.judge()
            self._past.add(self._store.snapshot())


def show(lines: Sequence[tracemalloc.Statistic]) -> None:
    """Print how much memory each line holds."""
    for line in lines:
        place = line.traceback[0]
        print(f"{line.size / 2**10:.0f} KiB {Path(place.filename).name}:{place.lineno}")


def main() -> int:
    """Play and print."""
    parser = argparse.ArgumentParser(prog="remembering.py", description=(__doc__ or "").split("\n\n", 1)[0])
    parser.add_argument("--minutes", type=int, default=60)
    parser.add_argument("--servers", type=int, help="number of servers polled once a second")
    parser.add_argument("--in-memory", action="store_true", help="no temporary files, as without a recorder")
    parser.add_argument("--trace", action="store_true", help="also print which lines hold the memory")
    options = parser.parse_args()
    if options.trace:
        tracemalloc.start()
    past = Past()
    play = Fleet(options.servers, past).play if options.servers else few(past)
    print("| minutes | resident, MiB | pictures |\n|---|---|---|")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:  # no memory, as /tmp may be
        spool = Spool(Path(folder))
        for minute in range(1, options.minutes + 1):
            play(minute)
            if not options.in_memory:
                past.move(spool)
            gc.collect()
            return_memory()
            if minute == 1 or minute % _EVERY_MIN == 0:
                resident = psutil.Process().memory_info().rss / 2**20
                print(f"| {minute} | {resident:.1f} | {len(past)} |", flush=True)
    if options.trace:
        show(tracemalloc.take_snapshot().statistics("lineno")[:_LINES])
    return 0


if __name__ == "__main__":
    sys.exit(main())
