"""Names what holds a server back, from its polls, its machines and the servers beside it.

The order of the rules is their strength. A machine whose clock is pinned, a full CPU core or a full link make
everything else look slow, so they come first. Then comes what makes requests wait, and last, where nothing
waits, what the steps themselves are limited by. Where figures are missing or contradict each other, the limit
is unknown, and the reason says what is missing.
"""

from __future__ import annotations

from msgspec.structs import replace

from sparktop.analysis.limited_by.evidence import Evidence
from sparktop.analysis.limited_by.load import Load, load_of
from sparktop.analysis.limited_by.machine_limits import cpu_limit, network_limit, power_limit, sees_clock
from sparktop.analysis.limited_by.queue_limits import kv_is_tight, kv_limit, slots_limit, split_limit
from sparktop.analysis.limited_by.step_cost import StepCost, step_cost
from sparktop.analysis.limited_by.step_limits import (
    IDLE_SHARE,
    PROMPTS_ALONE,
    client_limit,
    long_prefill_limit,
    prefill_limit,
    step_limit,
)
from sparktop.model.balance import BalanceWord
from sparktop.model.limit import Limit, LimitKind

_QUEUED = 0.5
"""Share of the polls in which requests wait from which on the limit is what makes them wait."""
_SELDOM_QUEUED = 0.2
"""Up to this share of the polls with waiting requests, the limit is sought in the steps or the client."""

_SLOWED = {LimitKind.SLOTS, LimitKind.PREFILL}
"""What a slow machine seems to be limited by: on it, requests stay longer, and prompts take longer."""


def limited_by(evidence: Evidence) -> Limit | None:
    """Return what holds a server back; None while there are too few polls to judge by."""
    if evidence.looks and evidence.looks[-1].running is None:
        return Limit(LimitKind.UNKNOWN, "the server does not report how many requests run")
    load = load_of(evidence.looks, evidence.window_s)
    if load is None:
        return None
    found = _outside(evidence, load) or _inside(evidence, load)
    return replace(_if_seen(evidence, found), window_s=load.span_s)


def _if_seen(evidence: Evidence, found: Limit) -> Limit:
    """Return `found`, or unknown if a machine that is not watched could look the same."""
    if found.kind not in _SLOWED or sees_clock(evidence):
        return found
    other = "or a low clock (watch its machine)"
    if evidence.spans > 1:
        other = "a low clock or a full link (watch its machines)"
    reason = f"{found.kind.value}, {other}: {found.reason}"
    return Limit(LimitKind.UNKNOWN, reason)


def _outside(evidence: Evidence, load: Load) -> Limit | None:
    """Return the limit outside the engine; None if there is none."""
    if load.idle >= IDLE_SHARE:
        return split_limit(evidence) or _unsplit(evidence)
    return power_limit(evidence) or split_limit(evidence) or cpu_limit(evidence) or network_limit(evidence)


def _unsplit(evidence: Evidence) -> Limit | None:
    """Return an unknown limit while it is not known yet how evenly the server's group is loaded.

    A server that is empty part of the time may be one that others leave without its share.
    """
    split = evidence.split
    if split is None or split.word is not BalanceWord.UNKNOWN or split.window_s >= split.needed_s:
        return None
    return Limit(LimitKind.UNKNOWN, "balance not judged yet: uneven load could be the cause")


def _inside(evidence: Evidence, load: Load) -> Limit:
    """Return the limit that the engine's queue shows, or else the limit of its steps or its client."""
    queued = 0.0 if load.is_passing and _has_room(evidence, load) else load.queued
    seldom = queued < _SELDOM_QUEUED
    found = (long_prefill_limit(load) or client_limit(load, evidence)) if seldom else None
    if found is not None:
        return found
    if load.idle >= IDLE_SHARE and evidence.looks[-1].waiting and queued < _QUEUED:
        now = f"{evidence.looks[-1].waiting:.0f} wait now"
        return Limit(LimitKind.UNKNOWN, f"{now}, and no request ran in {100 * load.idle:.0f} % of the time")
    cost = None
    if not evidence.counts_at_end:
        cost = step_cost(evidence.looks, speculates=evidence.speculates)
    if queued >= _QUEUED:
        return _of_queue(evidence, load, cost)
    if queued < _SELDOM_QUEUED:
        return prefill_limit(load, cost) or step_limit(evidence, load, cost)
    found = kv_limit(evidence, load) if load.preempted else None
    reason = f"requests waited in {100 * queued:.0f} % of the time, needs {100 * _QUEUED:.0f} %"
    return found or prefill_limit(load, cost) or Limit(LimitKind.UNKNOWN, reason)


def _has_room(evidence: Evidence, load: Load) -> bool:
    """Return whether neither slots nor the KV cache can be what makes requests wait."""
    return not load.preempted and slots_limit(evidence, load) is None and not kv_is_tight(evidence, load)


def _of_queue(evidence: Evidence, load: Load, cost: StepCost | None) -> Limit:
    """Return why requests wait."""
    if load.deferred > _QUEUED:
        share = f"{100 * load.deferred:.0f} % of {load.waiting:.0f} waiting requests"
        reason = f"{share} wait for other than room: a KV transfer or a LoRA adapter?"
        return Limit(LimitKind.UNKNOWN, reason)
    compute = None if load.preempted else prefill_limit(load, cost, PROMPTS_ALONE)
    found = compute or slots_limit(evidence, load) or kv_limit(evidence, load) or prefill_limit(load, cost)
    found = found or long_prefill_limit(load)
    if found is not None:
        return found
    free = "" if load.kv_percent is None else f", the KV cache has {100 - load.kv_percent:.0f} % free"
    slots = "" if evidence.slots is None else f"of {evidence.slots} slots "
    why = "too few step and token counts to tell why" if cost is None else "no figure tells why"
    reason = f"{load.waiting:.0f} wait while {load.running:.0f} {slots}run{free}: {why}"
    return Limit(LimitKind.UNKNOWN, reason)
