"""Limits inside the engine's steps, and the client or router that sends too little."""

from __future__ import annotations

from sparktop.analysis.limited_by.evidence import Evidence
from sparktop.analysis.limited_by.load import Load, newest
from sparktop.analysis.limited_by.machine_limits import (
    BUSY_GPU_PERCENT,
    foreign_gpu_percent,
    gpu_percent,
    sees_cores,
)
from sparktop.analysis.limited_by.step_cost import StepCost
from sparktop.model.limit import Limit, LimitKind

IDLE_SHARE = 0.1
"""Share of the polls without a running request from which on the client is the limit."""
_NEWEST_SHARE = 1 / 3
"""Newest part of the window in which the server must have been without a request too: what has changed since
is no limit any more."""
_HELD_BACK = 2.0
"""Requests inside a router from which on it holds them back: one may be on its way."""
PROMPTS = 0.5
"""Share of the time that prompts take from which on they are the limit."""
PROMPTS_ALONE = 0.7
"""The same share where slots are full too: below it, more slots would still help."""
_ENOUGH_SPREAD = 0.08
"""Least variation of the batch from which on the fixed part of a step and the growing part are separable."""
_FLAT, _STEEP = 0.55, 0.3
"""A decode step of which at least `_FLAT` is fixed is limited by reading weights, one of which at most
`_STEEP` is fixed by computing."""
_READS, _FEW_READS = 55.0, 50.0
"""Percentages of the memory bandwidth: reads that name it as the limit, and reads that contradict it."""
_FEW_ROWS = 64.0
"""Tokens in a step up to which a GPU that is busy all the time reads rather than computes: a GB10 computes
about 115 rows of 4-bit weights while it reads them, and GPUs with faster memory about 150 of 8 bits."""
_UNEXPLAINED = 0.5
"""A regression that leaves a larger part of the time unexplained is not used."""


def client_limit(load: Load, evidence: Evidence) -> Limit | None:
    """Return the limit by a client that leaves the server without requests for part of the time.

    With a router in front, that may be the router, unless its own counts tell which. None if the server has
    had requests throughout the newest part of the window, or if requests wait at it or fill its slots now. If
    other programs use the GPU meanwhile, the reason says so.
    """
    if load.idle < IDLE_SHARE or not _is_short_of_requests(evidence):
        return None
    percent = 100 * load.idle
    foreign = foreign_gpu_percent(evidence)
    if load.running_most == 0:
        reason = f"no request in the last {load.span_s:.0f} s"
    elif foreign is None and not load.queued:
        reason = f"no request runs in {percent:.0f} % of the time, none waits"
    else:
        reason = f"no request runs in {percent:.0f} % of the time"
    if foreign is not None:
        users = evidence.neighbours
        user = users[0] if len(users) == 1 else "other servers" if users else "another program"
        reason = f"{reason}, the GPU is {foreign:.0f} % busy with {user}"
    kind, why = _who_sends_too_little(evidence)
    return Limit(kind, f"{reason}{why}", None, percent, 100.0, "%")


def _is_short_of_requests(evidence: Evidence) -> bool:
    last = evidence.looks[-1]
    if last.waiting or (evidence.slots and (last.running or 0.0) >= evidence.slots):
        return False
    recent = newest(evidence.looks, evidence.window_s * _NEWEST_SHARE)
    return any(look.running == 0 and not look.waiting for look in recent)


def _who_sends_too_little(evidence: Evidence) -> tuple[LimitKind, str]:
    """Return the kind of the limit of a server that lacks requests, and what the router shows, in words."""
    name, held = evidence.router, evidence.held_back
    if name is None or evidence.routed is False:
        return LimitKind.CLIENT, ""
    slow = "" if evidence.slow_router is None else f"; {name} is slow: {evidence.slow_router}"
    if held is not None and held >= _HELD_BACK:
        return LimitKind.ROUTER, f"; {held:.0f} requests are still in {name}{slow}"
    if slow:
        return LimitKind.ROUTER if evidence.routed else LimitKind.CLIENT_OR_ROUTER, slow
    return (LimitKind.CLIENT_OR_ROUTER if held is None else LimitKind.CLIENT), ""


def long_prefill_limit(load: Load) -> Limit | None:
    """Return the limit by the prompts that are computed now, while no token comes; None if there are none."""
    if load.prefill_s is None:
        return None
    reason = f"no token in the last {load.prefill_s:.0f} s while the KV cache fills: prompts are computed"
    return Limit(LimitKind.PREFILL, reason, None, 100.0, 100.0, "%")


def prefill_limit(load: Load, cost: StepCost | None, least: float = PROMPTS) -> Limit | None:
    """Return the limit by computing prompts, if they take at least the share `least` of the time.

    What the server itself counts of that time is used and, where it counts none, an estimate from its steps.
    """
    estimate = None if cost is None or cost.unexplained > _UNEXPLAINED else cost.prompt_share
    share = estimate if load.prompt_share is None else load.prompt_share
    if share is None or share < least:
        return None
    rate = "" if load.prompt_tps is None else f", {load.prompt_tps:.0f} tok/s"
    percent = 100 * share
    reason = f"prompts take {percent:.0f} % of the time{rate}"
    return Limit(LimitKind.PREFILL, reason, None, percent, 100.0, "%")


def step_limit(evidence: Evidence, load: Load, cost: StepCost | None) -> Limit:
    """Return what limits steps of decoding; unknown where figures are missing or contradict each other."""
    if cost is None or cost.unexplained > _UNEXPLAINED:
        return _unknown("needs the number of engine steps and tokens over a minute")
    flat = cost.flatness if cost.batch_spread >= _ENOUGH_SPREAD else None
    missing = _missing(evidence, cost, flat)
    if missing is not None:
        return _unknown(missing)
    if flat is not None and flat <= _STEEP:
        added = f"{1000 * cost.per_token_s:.1f} ms"
        return Limit(LimitKind.DECODE, f"each request adds {added} to a step of {1000 * cost.step_s:.0f} ms")
    return _bandwidth(evidence, load, cost, flat)


def _missing(evidence: Evidence, cost: StepCost, flat: float | None) -> str | None:
    """Return what is missing or contradictory, so that steps cannot be judged; None if they can.

    `flat` is the part of a step that is fixed, 0 to 1; None if it is not known.
    """
    used, reads = gpu_percent(evidence), evidence.read_percent
    if used is not None and used < BUSY_GPU_PERCENT:
        cores = ", and no CPU core is full" if sees_cores(evidence) else ""
        return f"requests run, the GPU is busy only {used:.0f} % of the time{cores}"
    if cost.prompt_share > 1 - PROMPTS:
        return f"prompts take {100 * cost.prompt_share:.0f} % of the time, steps the rest"
    if reads is not None and reads >= _READS and (flat is None or flat > _STEEP):
        return None
    if used is None:
        return "not known whether its GPU waits: watch its machine"
    return _unclear(evidence, cost, flat)


def _unclear(evidence: Evidence, cost: StepCost, flat: float | None) -> str | None:
    """Return why it is not clear whether steps read or compute, of a server whose reads do not show it."""
    reads = evidence.read_percent
    if flat is None:
        few = cost.batch <= _FEW_ROWS and reads is None and evidence.spans == 1
        return None if few else f"needs steps of other sizes: all had {_requests(cost.batch)}"
    if _STEEP < flat < _FLAT:
        return f"{100 * flat:.0f} % of a step is fixed, the rest grows with its requests"
    if flat >= _FLAT and evidence.spans > 1 and reads is None:
        return "memory or network: needs the server's estimate of its memory reads"
    if flat >= _FLAT and reads is not None and reads < _FEW_READS:
        return f"steps are flat, but memory reads are only {reads:.0f} % of the bandwidth"
    return None


def _unknown(reason: str) -> Limit:
    return Limit(LimitKind.UNKNOWN, reason)


def _requests(count: float) -> str:
    return "1 request" if round(count) == 1 else f"{count:.0f} requests"


def _bandwidth(evidence: Evidence, load: Load, cost: StepCost, flat: float | None) -> Limit:
    read, percent = evidence.read_gb_per_s, evidence.read_percent
    parts, value, limit, unit = [], None, None, None
    step_s, batch = load.step_s or cost.step_s, load.batch or cost.batch
    step = f"a step takes {1000 * step_s:.0f} ms with {_requests(batch)}"
    if read is not None and percent:
        value, limit, unit = read, 100 * read / percent, "GB/s"
        parts.append(f"reads {value:.0f} of {limit:.0f} GB/s")
    if flat is not None:
        # A smaller fixed part would not show that steps read: then the reads do.
        parts.append(step + (f", {100 * flat:.0f} % of it fixed" if flat >= _FLAT else ""))
    if not parts:
        parts.append(f"{step}: far fewer than would keep the GPU computing")
    return Limit(LimitKind.BANDWIDTH, "; ".join(parts), _free(evidence, load, flat), value, limit, unit)


def _free(evidence: Evidence, load: Load, flat: float | None) -> str | None:
    """Return how many slots are free, and what twice the requests would gain if a step's fixed part is known.

    A step of which the part `flat` is fixed takes 2 - `flat` times as long with twice the requests.
    """
    if evidence.slots is None or load.running >= evidence.slots / 2:
        return None
    free = f"{evidence.slots - load.running:.0f} of {evidence.slots} slots are free"
    if flat is None:
        return f"{'hardly anything' if load.queued else 'nothing'} waits, {free}"
    return f"{free}: twice the requests give about {2 / (2 - min(1.0, flat)):.1f} × the tok/s"
