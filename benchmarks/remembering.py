"""Measure the memory of an hour of watching in virtual time: two servers and two machines polled at 4 Hz.

The real store and the pictures for going back in time are filled as by the screen, without a terminal and
without sockets. Prints the resident memory of this process, including the simulation.

usage: remembering.py [--minutes 60] [--trace]
"""

from __future__ import annotations

import argparse
import gc
import sys
import tracemalloc
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from sparktop.recording.past import Past
from sparktop.store import SourceKey
from sparktop.watch.own_cost import return_memory
from stage.rehearsal import Rehearsal

_HZ = 4
_ANSWER_S, _DRAWN_S = 0.012, 0.09
_EVERY_MIN = 5
_LINES = 15


class Fast(Rehearsal):
    """A rehearsal that is polled four times a second, and drawn after each poll."""

    def quarter(self, number: int, past: Past) -> None:
        """Poll and store a picture at the quarter second `number`; poll nodes every second time."""
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


def main() -> int:
    """Play the rehearsal and print the memory."""
    parser = argparse.ArgumentParser(prog="remembering.py", description=(__doc__ or "").split("\n\n", 1)[0])
    parser.add_argument("--minutes", type=int, default=60)
    parser.add_argument("--trace", action="store_true", help="also print which lines hold the memory")
    options = parser.parse_args()
    if options.trace:
        tracemalloc.start()
    rehearsal, past = Fast(backends=2, nodes=2, seed=0), Past()
    rehearsal.store.set_interval(1 / _HZ)
    print("| minutes | resident, MiB | pictures |\n|---|---|---|")
    for minute in range(1, options.minutes + 1):
        for number in range((minute - 1) * 60 * _HZ + 1, minute * 60 * _HZ + 1):
            rehearsal.quarter(number, past)
        if minute == 1 or minute % _EVERY_MIN == 0:
            gc.collect()
            return_memory()
            resident = psutil.Process().memory_info().rss / 2**20
            print(f"| {minute} | {resident:.1f} | {len(past)} |", flush=True)
    if options.trace:
        for line in tracemalloc.take_snapshot().statistics("lineno")[:_LINES]:
            place = line.traceback[0]
            print(f"{line.size / 2**10:.0f} KiB {Path(place.filename).name}:{place.lineno}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
