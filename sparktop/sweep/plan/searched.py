"""The plan of a capacity search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from sparktop.model.load import LoadKind, LoadMode, LoadPoint
from sparktop.model.targets import GuardLimits
from sparktop.model.text import clean
from sparktop.sweep.plan.capacity import NAME, default_seconds
from sparktop.sweep.plan.conversations.reading import find_conversations
from sparktop.sweep.plan.plan import Capacity, Plan, SweepTarget
from sparktop.sweep.plan.presets import DEFAULT, Wishes, find_preset, make_plan

WORKLOADS = ("coder-quick", "chat")
"""What agents do, unless the user chooses something else: the first that fits the servers' context."""


def make_capacity_plan(
    capacity: Capacity,
    targets: Sequence[SweepTarget],
    wishes: Wishes,
    *,
    guard: GuardLimits | None = None,
) -> Plan:
    """Return the plan of a search on `targets`, with the settings that the user gave.

    Raises:
        UsageError: settings contradict each other, or two targets have the same name.
    """
    kind = capacity.kind
    capacity = replace(capacity, fixed_workload=wishes.conversations is not None)
    wishes = replace(wishes, runs=1, duration_s=wishes.duration_s or default_seconds(kind))
    if kind is LoadKind.CONCURRENCY:
        wishes = replace(wishes, concurrency=(1,), mode=LoadMode.STEADY)
    else:
        wishes = replace(wishes, points=(LoadPoint(kind, 1),))
    if kind is LoadKind.AGENTS and wishes.conversations is None:
        wishes = replace(wishes, conversations=find_conversations(WORKLOADS[0]))
    # One level stands for all: it has the settings that all have, and these are checked.
    plan = make_plan(find_preset(DEFAULT), targets, wishes, guard=guard)
    return replace(plan, points=(), concurrency=(), climb_to=None, capacity=capacity, preset=NAME)


def fitted(plan: Plan, contexts: Mapping[str, int]) -> tuple[Plan, str]:
    """Return `plan` with conversations that fit `contexts`, and a sentence on them.

    `contexts` has the most tokens of a request by the name of a server. The plan stays as it is, and the
    sentence is empty, if its conversations fit, the user chose them, or none of `WORKLOADS` fits.
    """
    chosen = plan.conversations
    if plan.capacity is None or plan.capacity.fixed_workload or chosen is None or not contexts:
        return plan, ""
    server, context = min(contexts.items(), key=lambda one: one[1])
    fitting = (one for one in map(find_conversations, WORKLOADS) if one.least_context_tokens <= context)
    found = next(fitting, chosen)
    if found == chosen:
        return plan, ""
    words = (
        f"workload {found.name} instead of {chosen.name}, which needs about {chosen.least_context_tokens:,} "
        f"tokens a request: {clean(server, 64)} takes at most {context:,}"
    )
    return replace(plan, conversations=found), words


def default_capacity(kind: LoadKind = LoadKind.AGENTS) -> Capacity:
    """Return what a search looks for if the user says nothing."""
    from sparktop.sweep.plan.capacity import DEFAULT_CONDITIONS, default_most, parse_conditions

    return Capacity(kind, parse_conditions(DEFAULT_CONDITIONS, kind), most=default_most(kind))
