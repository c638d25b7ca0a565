"""Check whether the limit that sparktop names is the one that a simulated server was built to have.

Each run is a server (or several behind a router) with one known bottleneck, simulated for 75 s and polled
by the real store each second; a group behind a router, until its balance is judged, and a client with pauses,
until one of them is new: a pause that is over is no limit any more. `tuned` families were used
while the rules were written. `held out` families have other engines, other lengths and loads, and were only
run afterwards. Prints the confusion table of either: rows are the limits that runs were built with, columns
the verdicts of the store at their ends.

usage: limits.py [--held-out] [--blind] [--only KIND] [--runs 30] [--seed 0] [--write]
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import tables

from sparktop.analysis.balance.spread import fewest_requests
from sparktop.demo.machine import SimulatedMachine
from sparktop.model.balance import BalanceWord
from sparktop.model.snapshot import LimitKind
from sparktop.simulation.calibration import CLUSTER_TP2, GX10_PATCHED, LONG_CONTEXT, SOLO
from sparktop.simulation.engine import EngineProfile, StepCost
from stage.limited import LengthsDraw, LimitedRun, Setting, Users, kinds

SECONDS = 75
STEP_S, LONGEST_S = 15, 660
JUDGED_S = 15
"""Seconds after which a pause is a tenth of the polls, and the store has judged a server twice since."""
DENSE_8B = EngineProfile(
    name="dense-8b",
    model="dense-8b",
    cost=StepCost(0.032, 0.0, 0.032, 0.00019, 0.24e-6, 1.5e-9),
    max_model_len=32_768,
    max_num_seqs=128,
    max_num_batched_tokens=2048,
    kv_blocks=30_000,
    jitter=0.03,
)
"""A dense model of 8 billion parameters of 8 bits: each step reads 8.7 GB, whatever the batch."""
DENSE_70B = EngineProfile(
    name="dense-70b",
    model="dense-70b",
    cost=StepCost(0.15, 0.0, 0.15, 0.00125, 0.6e-6, 4e-9),
    max_model_len=32_768,
    max_num_seqs=64,
    max_num_batched_tokens=4096,
    kv_blocks=8_000,
    jitter=0.03,
)
"""A dense model of 70 billion parameters of 4 bits."""
_TUNED = (SOLO, GX10_PATCHED)
_HELD_OUT = (DENSE_8B, DENSE_70B, LONG_CONTEXT)


class Family:
    """Draws settings with one known limit."""

    def __init__(self, seed: int, *, held_out: bool) -> None:
        """Draw from the tuned engines and uniform lengths, or from held-out engines and skewed lengths."""
        self.dice = random.Random(f"{seed}/{held_out}")  # noqa: S311 - a load, no secret
        self.held_out = held_out
        self.engine = replace(self.dice.choice(_HELD_OUT if held_out else _TUNED), max_model_len=32_768)

    def lengths(self, prompt: float, output: float) -> LengthsDraw:
        """Return random lengths around a prompt and an output length in tokens."""
        return LengthsDraw(prompt, output, skewed=self.held_out)

    def seen(self, setting: Setting) -> Setting:
        """Return the setting with figures hidden at random, as on servers that do not report them."""
        return replace(setting, shows_slots=self.dice.random() < 0.5, shows_reads=self.dice.random() < 0.5)


def _kv(family: Family) -> Setting:
    dice = family.dice
    prompt, output, fit = dice.uniform(200, 1500), dice.uniform(150, 500), dice.randint(4, 24)
    users = round(fit * dice.uniform(1.6, 4))
    tokens = fit * (prompt + 0.7 * output)
    profile = replace(family.engine, kv_blocks=round(tokens / 16) + 1, max_num_seqs=max(64, 2 * users))
    profile = replace(profile, kv_blocks=max(profile.kv_blocks, round(3 * (prompt + output) / 16)))
    profile = replace(
        profile, max_num_batched_tokens=max(profile.max_num_batched_tokens, profile.max_num_seqs)
    )
    return Setting(profile, Users(users, family.lengths(prompt, output)))


def _slots(family: Family) -> Setting:
    dice = family.dice
    prompt, output, slots = dice.uniform(50, 600), dice.uniform(150, 500), dice.randint(2, 24)
    blocks = round(slots * (prompt + output) * dice.uniform(2.5, 10) / 16) + 200
    profile = replace(family.engine, max_num_seqs=slots, kv_blocks=blocks)
    return Setting(profile, Users(round(slots * dice.uniform(1.4, 4)) + 1, family.lengths(prompt, output)))


def _bandwidth(family: Family) -> Setting:
    dice = family.dice
    prompt, output = dice.uniform(30, 300), dice.uniform(250, 800)
    profile = replace(family.engine, max_num_seqs=64, kv_blocks=40_000)
    return Setting(profile, Users(dice.randint(1, 20), family.lengths(prompt, output)))


def _prefill(family: Family) -> Setting:
    dice = family.dice
    prompt, output = dice.uniform(2500, 9000), dice.uniform(2, 12)
    profile = replace(family.engine, max_num_seqs=64, kv_blocks=60_000, max_num_batched_tokens=8192)
    return Setting(profile, Users(dice.randint(6, 30), family.lengths(prompt, output)))


def _cpu(family: Family) -> Setting:
    dice = family.dice
    prompt, output, users = dice.uniform(50, 400), dice.uniform(100, 500), dice.randint(2, 24)
    cost = family.engine.cost
    step_s = min(cost.weights_one_s * users**cost.weights_exponent, cost.weights_all_s) + users * cost.row_s
    host_s = step_s * dice.uniform(1.6, 5)
    per_row = dice.random() < 0.5
    profile = replace(
        family.engine,
        max_num_seqs=64,
        kv_blocks=40_000,
        host_s=0.0 if per_row else host_s,
        host_row_s=host_s / users if per_row else 0.0,
    )
    return Setting(profile, Users(users, family.lengths(0.2 * prompt if per_row else prompt, output)))


def _power(family: Family) -> Setting:
    setting = family.dice.choice((_slots, _bandwidth, _prefill))(family)
    return replace(setting, pinned_mhz=family.dice.uniform(400, 850))


def _network(family: Family) -> Setting:
    dice = family.dice
    gbit = dice.choice((1.0, 2.5, 5.0, 10.0)) if family.held_out else dice.choice((1.0, 10.0))
    bytes_per_row = dice.uniform(0.8e6, 4e6)
    users, output = dice.randint(4, 24), dice.uniform(200, 500)
    cost = CLUSTER_TP2.cost
    step_s = min(cost.weights_one_s * users**cost.weights_exponent, cost.weights_all_s)
    # The link takes at least as long as the reading of weights.
    needed = dice.uniform(1.2, 4) * step_s * gbit * 1.25e8 / users
    profile = replace(
        CLUSTER_TP2,
        max_model_len=32_768,
        max_num_seqs=64,
        link_bytes_per_row=round(max(bytes_per_row, needed)),
        link_bytes_per_s=gbit * 1.25e8,
    )
    machine = SimulatedMachine(link_bits_per_s=gbit * 1e9)
    return Setting(profile, Users(users, family.lengths(dice.uniform(30, 200), output)), machine=machine)


def _router(family: Family) -> Setting:
    dice = family.dice
    servers = dice.choice((2, 3))
    share = dice.uniform(0.0, 0.06)
    shares = (1 - share * (servers - 1), *[share] * (servers - 1))
    slots = dice.choice((16, 48))
    profile = replace(family.engine, max_num_seqs=slots, kv_blocks=40_000)
    lengths = family.lengths(dice.uniform(50, 500), dice.uniform(150, 400))
    # With fewer, the balance has no verdict, and no router is blamed.
    least = round(1.25 * fewest_requests(servers))
    users = Users(max(least, round(slots * dice.uniform(0.6, 1.8))), lengths, shares=shares)
    return Setting(profile, users, servers=servers)


def _client(family: Family) -> Setting:
    dice = family.dice
    prompt, output = dice.uniform(50, 400), dice.uniform(60, 300)
    profile = replace(family.engine, max_num_seqs=64, kv_blocks=40_000)
    cost = profile.cost
    life_s = output * cost.weights_one_s + prompt * cost.row_s
    idle = dice.uniform(0.25, 0.8)
    if dice.random() < 0.5:
        pause_s = life_s * idle / (1 - idle)
        return Setting(profile, Users(1, family.lengths(prompt, output), pause_s=pause_s))
    # At this rate of requests, the engine is idle for about the share `idle` of the time.
    return Setting(profile, Users(0, family.lengths(prompt, output), per_s=(1 - idle) / life_s))


FAMILIES: dict[LimitKind, Callable[[Family], Setting]] = {
    LimitKind.KV: _kv,
    LimitKind.SLOTS: _slots,
    LimitKind.BANDWIDTH: _bandwidth,
    LimitKind.PREFILL: _prefill,
    LimitKind.CPU: _cpu,
    LimitKind.POWER: _power,
    LimitKind.NETWORK: _network,
    LimitKind.ROUTER: _router,
    LimitKind.CLIENT: _client,
}


def run(kind: LimitKind, family: Family, seed: int, *, blind: bool = False) -> tuple[str, str]:
    """Simulate one run; return (the word of the verdict, the verdict's line).

    With `blind`, its machines are not watched.
    """
    setting = replace(family.seen(FAMILIES[kind](family)), shows_machines=not blind)
    simulated = LimitedRun(setting, seed)
    limits = simulated.play(SECONDS)
    while kind is LimitKind.ROUTER and not _is_judged(simulated):
        limits = simulated.play(STEP_S)
    if kind is LimitKind.CLIENT:
        while simulated.store.snapshot().backends[0].running:
            limits = simulated.play(1)
        limits = simulated.play(JUDGED_S)
    return kinds(limits)[0], "–" if limits[0] is None else limits[0].line


def _is_judged(simulated: LimitedRun) -> bool:
    """Return whether the balance has a verdict, for which a router's limit waits, or had its time for one."""
    shown = simulated.store.snapshot()
    return shown.at >= LONGEST_S or any(one.word is not BalanceWord.UNKNOWN for one in shown.balance)


Job = tuple[LimitKind, int, bool, bool]
"""(kind, seed, whether the family is held out, whether it has no view of its machines)."""


def _run(job: Job) -> tuple[str, str]:
    kind, seed, held_out, blind = job
    return run(kind, Family(seed, held_out=held_out), seed, blind=blind)


def table(found: Mapping[LimitKind, Counter[str]]) -> list[str]:
    """Return the confusion table: the limits that runs were built with, and the verdicts on them."""
    words = [kind.value for kind in FAMILIES] + [LimitKind.UNKNOWN.value]
    words += sorted({word for counts in found.values() for word in counts} - set(words))
    rows = ([kind.value, *(counts[word] or "" for word in words)] for kind, counts in found.items())
    total = sum(counts.total() for counts in found.values())
    right = sum(counts[kind.value] for kind, counts in found.items())
    unknown = sum(counts[LimitKind.UNKNOWN.value] for counts in found.values())
    said = f"{total} runs: right {right} ({100 * right / total:.1f} %), unknown {unknown}"
    lines = tables.table(("built to be limited by", *words), rows)
    return [*lines, "", f"{said}, wrong {total - right - unknown}."]


def main() -> None:
    """Run the families and print the confusion table."""
    parser = tables.options(__doc__, runs=30)
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--blind", action="store_true", help="without a view of the machines")
    parser.add_argument("--only", choices=[kind.name for kind in FAMILIES])
    options = parser.parse_args()
    jobs: list[Job] = [
        (kind, seed, options.held_out, options.blind)
        for kind in FAMILIES
        if options.only in {None, kind.name}
        for seed in range(options.seed, options.seed + options.runs)
    ]
    found: dict[LimitKind, Counter[str]] = {}
    for job, (word, line) in zip(jobs, tables.in_processes(_run, jobs), strict=True):
        found.setdefault(job[0], Counter())[word] += 1
        if word != job[0].value:
            print(f"{job[0].value} {job[1]}: {line}", file=sys.stderr, flush=True)
    words = " ".join(["held-out"] * options.held_out + ["blind"] * options.blind)
    tables.publish(f"limits.py {words or 'tuned'}", table(found), write=options.write)


if __name__ == "__main__":
    main()
