"""The balance judge: false alarms and detection on independent simulations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from families import SOON_S
from load_families.families import FAMILIES, Family
from load_families.watching import SWINGS, Run, watch
from tables import Figure

AREA = "balance"
SHORT_RUNS, LONG_RUNS = 1, 20
SHORT_S, SHORT_HERDING_S = 150.0, 300.0
"""Seconds of a run in the short form; a limit cycle of cooldowns lasts up to a minute, and four show it."""
SHORT_SEED, LONG_SEED = 500, 2_000_000
"""First seeds; those of the long form were not used to choose anything."""
FOUND_SHARE = 0.95


def figures(*, short: bool) -> Iterator[Figure]:
    """Measure each family of loads."""
    for number, family in enumerate(FAMILIES):
        if short and number % 3 and not family.herds:
            continue
        seconds = SHORT_HERDING_S if family.herds else SHORT_S
        kept = replace(family, seconds=seconds) if short else family
        first, count = (SHORT_SEED, SHORT_RUNS) if short else (LONG_SEED, LONG_RUNS)
        runs = [watch(kept, f"{family.name}-{seed}") for seed in range(first, first + count)]
        wrong = sum(bool(one.false_words) for one in runs)
        shown = f"{wrong} of {len(runs)} runs"
        yield Figure(AREA, f"false alarms, {family.name}", "none", shown, shown, "none", holds=wrong == 0)
        if family.herds:
            yield _found(family, runs)


def _found(family: Family, runs: Sequence[Run]) -> Figure:
    plain = [one for one in runs if one.swing >= SWINGS]
    found = [one for one in plain if one.named_s is not None]
    soon = sum((one.named_s or 0.0) <= SOON_S for one in found)
    return Figure(
        AREA,
        f"swings found, {family.name}",
        f"{len(plain)} runs",
        f"{len(found)} runs",
        f"{soon} within {SOON_S:.0f} s",
        f"{100 * FOUND_SHARE:.0f} %",
        holds=len(found) >= FOUND_SHARE * len(plain),
    )
