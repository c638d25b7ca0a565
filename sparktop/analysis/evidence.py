"""What a verdict on a server's limit is computed from: polls of the server, its machines and its peers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from msgspec import Struct

from sparktop.model.balance import Balance
from sparktop.model.event import Finding
from sparktop.model.snapshot import SpeedState

_LEAST_PREFILL_S = 3.0
"""Shorter times without a token are those of a usual prompt."""
_LONGEST_CHUNK_S = 15.0
"""Longest time that one chunk of a prompt may take: without growth of the KV cache for longer, no prompt is
computed."""


class Poll(NamedTuple):
    """One poll of a server: its load, and totals of what it did. A figure that is not reported is None."""

    at: float
    """Monotonic seconds."""
    running: float | None = None
    waiting: float | None = None
    for_capacity: float | None = None
    """Waiting requests that would run if there were room; part of `waiting`."""
    kv_percent: float | None = None
    """KV cache usage (0 to 100) of the engine core that has the highest."""
    steps: float | None = None
    """Total of engine steps, like the following totals since any earlier time."""
    generated: float | None = None
    """Total of generated tokens."""
    prompted: float | None = None
    """Total of prompt tokens that were computed."""
    preempted: float | None = None
    """Total of preemptions."""
    finished: float | None = None
    """Total of finished requests."""
    prefilled_s: float | None = None
    """Total of the seconds that it has computed prompts, by its own count."""


class MachinePoll(NamedTuple):
    """One sample of a machine. A figure that is not reported is None."""

    at: float
    gpu_percent: float | None = None
    """Use of its busiest GPU."""
    clock_mhz: float | None = None
    """SM clock of that GPU."""
    core_percent: float | None = None
    """Use of its busiest logical CPU core."""
    link_share: float | None = None
    """Traffic of its busiest RDMA port or network interface in one direction, as a share of what it can
    carry, 0 to 1."""
    link_bytes_per_s: float | None = None
    """That traffic."""
    link: str | None = None
    """Name of that port or interface."""
    gb10_power_w: float | None = None
    """Power of its busiest GPU, if that is a GB10, of which it is known what it draws while it computes."""


class MachineEvidence(Struct, frozen=True):
    """A machine that a server runs on."""

    name: str
    polls: tuple[MachinePoll, ...] = ()
    """Newest last."""
    speed: SpeedState = SpeedState()
    usual_mhz: float | None = None
    """The SM clock that its GPU has reached under load; None if it was never under load."""


class Peer(Struct, frozen=True):
    """Another server behind the same router."""

    name: str
    polls: tuple[Poll, ...] = ()
    slots: int | None = None


class Evidence(Struct, frozen=True):
    """Everything that the limit of one server is judged by."""

    polls: tuple[Poll, ...]
    """Polls of the server over about a minute, newest last."""
    slots: int | None = None
    """Most requests that it runs at once, over all engine cores; None if unknown."""
    kv_capacity_tokens: float | None = None
    """Tokens for which the KV cache of one engine core has room."""
    swa_percent: float | None = None
    """Use of the pool of sliding-window layers, which holds tokens as the KV cache does."""
    states_percent: float | None = None
    """Use of the pool of states, one for a request."""
    machines: tuple[MachineEvidence, ...] = ()
    """Machines that it runs on and that are watched."""
    spans: int = 1
    """Number of machines that it runs on, watched or not."""
    cores: int = 1
    """Number of its engine cores (data-parallel ranks)."""
    router: str | None = None
    """Name of the router in front of it; None if none is known."""
    unmatched_router: str | None = None
    """Where `router` is None: a router that may be in front of it, as its servers are not known."""
    routed: bool | None = None
    """Whether the router's own counts show that the server's requests pass it; None if it does not count."""
    requests_in_router: float | None = None
    """Requests that the router has received and no server behind it holds; None if it does not count them."""
    slow_router: str | None = None
    """What shows that the router itself is slow, in words; None if nothing does."""
    split: Balance | None = None
    """The verdict on how evenly the server's group is loaded; None for a server without a group."""
    peers: tuple[Peer, ...] = ()
    """The other servers behind that router that serve the same model in the same role."""
    neighbours: tuple[str, ...] = ()
    """Names of the other servers on its machines that run requests."""
    read_percent: float | None = None
    """Memory reads of its GPUs as a percentage of the bandwidth, by the server's own estimate."""
    read_gb_per_s: float | None = None
    """These reads."""
    server_cores: float | None = None
    """CPU cores that its HTTP server's process used, by its own page."""
    slow_link: Finding | None = None
    """That its ranks wait for a slow link; None where that is not so, or not known."""
    window_s: float = 30.0
    """Seconds up to the newest poll over which the load is judged."""
    counts_at_end: bool = False
    """Whether tokens are counted when a request ends: then they say nothing of the steps of an interval."""
    speculates: bool = False
    """Whether it decodes speculatively: a step then yields several tokens for each request."""


def prefill_s(polls: Sequence[Poll]) -> float | None:
    """Return for how many seconds a server has computed prompts and generated nothing, up to the newest poll.

    Its KV cache grows with each chunk of a prompt, while tokens and prompt tokens are counted at its end.
    None if it generates, holds no request, has done so for less than `_LEAST_PREFILL_S`, or its KV cache has
    not grown for `_LONGEST_CHUNK_S`.
    """
    newest = polls[-1] if polls else None
    if newest is None or not newest.running or newest.generated is None:
        return None
    begin_at = newest.at
    grew_at: float | None = None
    # From the newest poll back, as long as nothing was generated and the cache did not shrink.
    for later, earlier in pairwise(reversed(polls)):
        if earlier.generated != newest.generated or earlier.kv_percent is None or later.kv_percent is None:
            break
        if later.kv_percent < earlier.kv_percent:
            break
        if grew_at is None and later.kv_percent > earlier.kv_percent:
            grew_at = later.at
        if not earlier.running:
            break
        begin_at = earlier.at
    is_recent = grew_at is not None and newest.at - grew_at <= _LONGEST_CHUNK_S
    lasted_s = newest.at - begin_at
    return lasted_s if is_recent and lasted_s >= _LEAST_PREFILL_S else None


def growth(before: float | None, after: float | None) -> float | None:
    """Return by how much a total grew between two polls; None if it is unknown, or fell."""
    return None if before is None or after is None or after < before else after - before
