"""Set-ups for the capacity search, each drawn from its seed, and levels of load on them in virtual time."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from limits import DENSE_8B, DENSE_70B

from sparktop.model.load import Level, LoadEvent, LoadKind, LoadMode, LoadPoint
from sparktop.simulation.calibration import CLUSTER_TP2, GX10_VANILLA, LONG_CONTEXT, SOLO
from sparktop.simulation.engine import Engine, EngineProfile
from sparktop.sweep.plan.arrivals import Pattern, Rate, due_times
from sparktop.sweep.plan.capacity import default_seconds, parse_conditions
from sparktop.sweep.plan.conversations.lane import planned_turns
from sparktop.sweep.plan.conversations.reading import find_conversations
from sparktop.sweep.plan.plan import Capacity, Plan
from sparktop.sweep.run.conversations.level import ramp_s, tail_s
from sparktop.sweep.run.open_loop.arrivals import warm_up_s
from stage.clients import ClosedLoop, DirectWay, OpenLoop, VirtualTime
from stage.conversations import Conversations

TUNED_SEED, FRESH_SEED = 9100, 9300
"""First seeds: of set-ups with which the search was tuned, and of those with other models and lengths."""
_RAMP_SHARE, _LONGEST_RAMP_S = 0.1, 5.0
"""Ramp of a steady level as a share of its duration, and its maximum in seconds, as in the generator."""
_MOST, _MOST_CODER = 48.0, 12.0
_KINDS = (
    ("coder-quick", LoadKind.AGENTS),
    ("chat", LoadKind.AGENTS),
    ("concurrency", LoadKind.CONCURRENCY),
    ("rate", LoadKind.RATE),
    ("coder", LoadKind.AGENTS),
    ("rag", LoadKind.AGENTS),
)
FAMILIES = tuple(name for name, _ in _KINDS)


class Setup(NamedTuple):
    """A simulated server, the plan of the search on it, and a description of both."""

    family: str
    words: str
    profile: EngineProfile
    plan: Plan

    @property
    def capacity(self) -> Capacity:
        """The kind of load and the conditions of the search."""
        if self.plan.capacity is None:
            raise ValueError(self.words)
        return self.plan.capacity


def setup(seed: int) -> Setup:
    """Return the set-up drawn from a seed; consecutive seeds have different kinds of load."""
    dice = random.Random(f"capacity/{seed}")  # noqa: S311 - no secret
    family, kind = _KINDS[seed % len(_KINDS)]
    fresh = seed >= FRESH_SEED
    base = dice.choice((DENSE_8B, CLUSTER_TP2, DENSE_70B) if fresh else (SOLO, GX10_VANILLA, LONG_CONTEXT))
    if family in {"coder", "rag"}:  # a model too slow for a single agent would test nothing
        base = dice.choice((DENSE_8B, CLUSTER_TP2) if fresh else (SOLO, GX10_VANILLA))
    slots = dice.choice((8, 16, 48, 128))
    blocks = dice.choice((24_000, 48_000)) if family == "coder" else dice.choice((4_000, 8_000, 24_000))
    profile = replace(
        base,
        max_num_seqs=slots,
        kv_blocks=blocks,
        max_model_len=131_072 if family == "coder" else 49_152,
        max_num_batched_tokens=dice.choice((2048, 8192)),
    )
    ttft_ms = dice.choice((10_000, 20_000) if family in {"coder", "rag"} else (500, 1000, 2000, 4000))
    conditions = f"ttft_{dice.choice(('p90', 'p95'))}_ms={ttft_ms},stream_tps={dice.choice((4, 8, 15))}"
    prompt = dice.choice((64, 1024, 4096) if fresh else (128, 512, 2048))
    output = dice.choice((48, 120, 240) if fresh else (32, 128, 300))
    most = _MOST_CODER if family == "coder" else _MOST
    capacity = Capacity(kind, parse_conditions(conditions, kind), most=most)
    plan = Plan(targets=(), pp=prompt, tg=output, runs=1, duration_s=default_seconds(kind))
    lengths = f"{prompt} + {output} tokens"
    if kind is LoadKind.AGENTS:
        plan = replace(plan, conversations=find_conversations(family), mode=LoadMode.AGENTS)
        lengths = ""
    else:
        plan = replace(plan, mode=LoadMode.OPEN if kind is LoadKind.RATE else LoadMode.STEADY)
    parts = (base.name, f"{slots} slots", f"{blocks * 16 // 1000}k KV", lengths)
    words = f"{', '.join(part for part in parts if part)}: {conditions}"
    return Setup(family, words, profile, replace(plan, capacity=capacity, points=(LoadPoint(kind, 1),)))


def run_level(made: Setup, value: float, duration_s: float, seed: str) -> list[LoadEvent]:
    """Simulate one run of a level with requests drawn from `seed`; return its events."""
    time = VirtualTime([Engine(made.profile, seed=seed)])
    way, plan = DirectWay(time), replace(made.plan, duration_s=duration_s)
    if plan.kind is LoadKind.RATE:
        return _arrivals(time, way, plan, value, seed)
    if plan.kind is LoadKind.CONCURRENCY:
        level = Level("s", int(value), plan.pp, plan.tg, LoadMode.STEADY, 1, duration_s)
        stagger_s = min(_LONGEST_RAMP_S, _RAMP_SHARE * duration_s)
        closed = ClosedLoop(time, way, level, seed=seed, stagger_s=stagger_s)
        closed.start()
        time.run(duration_s + 600)
        return closed.events
    preset = plan.conversations
    if preset is None:
        raise ValueError(made)
    turns = [planned_turns(preset, seed, lane, made.profile.max_model_len) for lane in range(int(value))]
    agents = Conversations(time, way, turns, block_tokens=made.profile.block_tokens)
    agents.start(duration_s, ramp_s=ramp_s(plan), tail_s=tail_s(plan))
    time.run(duration_s + 3000)
    return agents.events


def _arrivals(time: VirtualTime, way: DirectWay, plan: Plan, value: float, seed: str) -> list[LoadEvent]:
    warm_s, tail = warm_up_s(plan), tail_s(plan)
    end_s = warm_s + (plan.duration_s or 0.0)
    due = due_times(Pattern(), Rate(value), end_s + tail, seed)
    loop = OpenLoop(time, way, lambda _: (plan.pp, plan.tg))
    loop.start(due, (warm_s, end_s), end_s + tail)
    time.run(end_s + tail)
    return loop.events
