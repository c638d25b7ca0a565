"""What holds each backend back, as screens show it: the evidence collected, and the newest verdict kept.

The rules are in `analysis/limited_by.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from sparktop.analysis.bandwidth import bandwidth_gb_per_s, read_percent, reads_words
from sparktop.analysis.evidence import Evidence, MachineEvidence, Peer, Poll
from sparktop.analysis.state import limit_to_show
from sparktop.model.balance import Balance, BalanceWord, balance_cost
from sparktop.model.event import Finding, Progress
from sparktop.model.instant import Instant
from sparktop.model.series import known_mean, sum_if_all_known
from sparktop.model.snapshot import BackendView, Limit, LimitKind
from sparktop.store.backend import BackendTrack
from sparktop.store.event_log import ActiveAlerts
from sparktop.store.node import NodeTrack
from sparktop.store.routers import STUCK, Group, Routed, RouterTrack
from sparktop.store.sources import SourceKey

EVERY_S = 5.0
"""Seconds between two verdicts on the limit of one backend."""
MOST_AT_ONCE = 16
"""Backends judged in one call of `judge_due`: a longer call would stall the screen."""
_MOST_PEERS = 3
"""Servers compared with one behind a router: this many of those with the fewest requests, and of those with
the most."""

_HUNG = {Progress.SUSPECT, Progress.STUCK}
_ROUTED_S = 60.0
"""Seconds over which the counts of a router are compared with those of the servers behind it."""
_OF_THE_SPLIT = {LimitKind.CLIENT, LimitKind.CLIENT_OR_ROUTER, LimitKind.ROUTER}
"""Limits that depend on the verdict on the group's balance."""
_AT_EASE = frozenset({BalanceWord.BALANCED, BalanceWord.IDLE})
"""Verdicts on a group that explain no limit of its servers."""


class _LimitState(Struct):
    """What is kept of one backend."""

    limit: Limit | None = None
    """The newest verdict that was confirmed."""
    gpu_percent: float | None = None
    """Use of its GPUs if they have been at work of late: dropped once two judgements in a row found none."""
    next_gpu: float | None = None
    """Use of its GPUs by the newest judgement alone."""
    next_kind: LimitKind | None = None
    """Kind of a verdict that differs from `limit`: seen once so far."""
    judged_at: float = -math.inf
    """Monotonic seconds."""
    split: tuple[BalanceWord, str] | None = None
    """The verdict on the group's balance with which it was judged, and what that costs."""

    def keep(self, limit: Limit | None) -> None:
        """Record a judgement; a limit of another kind must be judged twice in a row, None holds at once."""
        kind = None if limit is None else limit.kind
        if limit is None or self.limit is None or kind in {self.limit.kind, self.next_kind}:
            self.limit, self.next_kind = limit, None
        else:
            self.next_kind = kind


class ServerLimits:
    """What holds each backend back, as of the newest verdict.

    A limit replaces another one when two judgements in a row agree, so that the line does not flicker; that
    there is none holds at once.
    """

    def __init__(self) -> None:
        """Start without verdicts."""
        self._states: dict[str, _LimitState] = {}

    def limit_of(self, view: BackendView) -> Limit | None:
        """Return what holds a backend back; None if it does not answer, stands still or was not judged.

        Of one that stands still only the limit by the machine's clock is returned: it explains a long step.
        """
        limit = self._states[view.name].limit if view.name in self._states else None
        progress = None if view.progress is None else view.progress.word
        if view.failure is not None or progress in _HUNG:
            return None
        if progress is Progress.STILL and (limit is None or limit.kind is not LimitKind.POWER):
            return None
        return _with_reads(limit_to_show(limit, view), view.estimated_read_gb_per_s)

    def judge_due(
        self,
        when: Instant,
        alerts: ActiveAlerts,
        backends: Mapping[str, BackendTrack],
        nodes: Mapping[str, NodeTrack],
        routed: Routed,
        groups: Iterable[Balance] = (),
        slow_links: Mapping[str, Finding] = MappingProxyType({}),
    ) -> None:
        """Judge the backends that are due at `when`, those waiting longest first.

        `groups` are the newest verdicts on groups, which have been judged before: a limit that contradicts
        the verdict on its group is judged again at once, or not shown until then, and one that names another
        cost of it at once. `slow_links` are the findings about backends whose ranks wait for a slow link.
        """
        at = when.at
        self._states = {name: self._states.get(name) or _LimitState() for name in backends}
        splits = {name: group for group in groups if group.lanes_of is None for name in group.backends}
        for name, state in self._states.items():
            _forget_contradicted(state, _said_of(splits.get(name)))
        due_names = [name for name, state in self._states.items() if at - state.judged_at >= EVERY_S]
        due_names.sort(key=lambda name: self._states[name].judged_at)
        running = _running_on(backends) if due_names else {}
        for name in due_names[:MOST_AT_ONCE]:
            state, split = self._states[name], splits.get(name)
            state.judged_at, state.split = at, _said_of(split)
            track, limit, gpu_percent = backends[name], None, None
            if track.health.failure is None and _polls_of_one_load(track):
                from sparktop.analysis.limited_by import gpu_at_work, limited_by  # late: comes after seconds

                others = (other for node in track.view.nodes for other in running.get(node, ()))
                neighbours = tuple(other for other in dict.fromkeys(others) if other != name)
                slow_link = slow_links.get(name)
                with alerts.keep_fault(SourceKey.backend(name).label, "its limit", when):
                    evidence = _evidence(track, backends, nodes, routed, neighbours, split, slow_link)
                    limit, gpu_percent = limited_by(evidence), gpu_at_work(evidence)
            state.keep(limit)
            state.gpu_percent = state.next_gpu if gpu_percent is None else gpu_percent
            state.next_gpu = gpu_percent
        for name, track in backends.items():
            state = self._states[name]
            gpu_percent = state.gpu_percent
            if gpu_percent is None and track.runs_many:
                gpu_percent = _gpu_now(track, nodes)
            track.show_limit(state.limit, gpu_percent)


def _forget_contradicted(state: _LimitState, said: tuple[BalanceWord, str] | None) -> None:
    """Make a backend due where `said` of the group's balance is new, and drop a limit that contradicts it.

    Limits by how the load is split depend on the verdict; a verdict that explains the load may be the limit.
    """
    if said == state.split:
        return
    state.judged_at = -math.inf
    word, word_before = (None if split is None else split[0] for split in (said, state.split))
    if word is word_before:
        return
    state.next_kind = None
    is_explained = word is not None and word not in _AT_EASE
    if state.limit is not None and (is_explained or state.limit.kind in _OF_THE_SPLIT):
        state.limit = None


def _with_reads(limit: Limit | None, gb_per_s: float | None) -> Limit | None:
    """Return a limit by the bandwidth with the reads of now, which figures beside it show, too."""
    if limit is None or limit.kind is not LimitKind.BANDWIDTH:
        return limit
    if limit.value is None or limit.limit is None or gb_per_s is None:
        return limit
    judged, now = (reads_words(reads, limit.limit) for reads in (limit.value, gb_per_s))
    return replace(limit, value=gb_per_s, reason=limit.reason.replace(judged, now))


def _gpu_now(track: BackendTrack, nodes: Mapping[str, NodeTrack]) -> float | None:
    """Return the use of a server's GPUs in percent at their newest sample; None if unknown or not at work."""
    from sparktop.analysis.limited_by import BUSY_GPU_PERCENT  # late: as above

    views = [nodes[name].view for name in track.view.nodes if name in nodes]
    samples = [view.sample for view in views if view.sample is not None and view.failure is None]
    means = [known_mean(gpu.utilization_percent for gpu in sample.gpus) for sample in samples]
    used = sum_if_all_known(means) if means and len(means) == len(track.view.nodes) else None
    return used / len(means) if used is not None and used >= BUSY_GPU_PERCENT * len(means) else None


def _said_of(split: Balance | None) -> tuple[BalanceWord, str] | None:
    """Return what a limit may say of a balance: the verdict, and what it costs."""
    return None if split is None else (split.word, balance_cost(split))


def _running_on(backends: Mapping[str, BackendTrack]) -> dict[str, list[str]]:
    """Return the names of the backends that run requests, by the node they are on."""
    result: dict[str, list[str]] = {}
    for name, track in backends.items():
        if track.view.running:
            for node in track.view.nodes:
                result.setdefault(node, []).append(name)
    return result


def _evidence(
    track: BackendTrack,
    backends: Mapping[str, BackendTrack],
    nodes: Mapping[str, NodeTrack],
    routed: Routed,
    neighbours: tuple[str, ...],
    split: Balance | None,
    slow_link: Finding | None,
) -> Evidence:
    """Return what the limit of one backend is judged by."""
    view, lanes = track.view, max(1, len(track.view.lanes))
    hosts = [nodes[name] for name in view.nodes if name in nodes]
    samples = [nodes[name].view.sample if name in nodes else None for name in view.nodes]
    front, peers = _peers(track, backends, routed)
    router = is_routed = requests_in_router = None
    if front is not None:
        router, group = front
        watched = [backends[name] for name in group.backends if name in backends]
        behind = [member for member in watched if member.work.polls]
        is_routed = _is_routed(router, behind)
        if len(behind) == len(group.backends):  # else some requests may be at one that is not watched
            requests_in_router = _requests_held_back(router, behind)
    capacity = view.kv_capacity_tokens
    reads = view.estimated_read_gb_per_s
    return Evidence(
        _polls_of_one_load(track),
        slots=view.slots,
        kv_capacity_tokens=None if capacity is None else capacity / lanes,
        swa_percent=view.counter_figures.get("swa_pool_percent"),
        states_percent=view.counter_figures.get("mamba_pool_percent"),
        machines=tuple(
            MachineEvidence(host.target.name, tuple(host.polls), host.view.speed, host.usual_mhz)
            for host in hosts
            if host.health.failure is None
        ),
        spans=max(1, len(view.nodes)),
        cores=lanes,
        router=None if router is None else router.target.name,
        unmatched_router=_unmatched_router(track, routed) if router is None else None,
        routed=is_routed,
        requests_in_router=requests_in_router,
        slow_router=None if router is None else router.slowness,
        split=split,
        peers=peers,
        neighbours=neighbours,
        read_percent=read_percent(bandwidth_gb_per_s(samples), reads, len(view.nodes), lanes),
        read_gb_per_s=reads,
        server_cores=track.work.server_cores,
        counts_at_end=view.rate_note is not None,  # says that tokens are counted once a request ends
        speculates=bool(view.spec_drafts_per_s),
        slow_link=slow_link,
    )


def _polls_of_one_load(track: BackendTrack) -> tuple[Poll, ...]:
    """Return the polls since the newest sweep began: the load before it was another one."""
    return tuple(poll for poll in track.work.polls if poll.at >= track.loaded_since)


def _peers(
    track: BackendTrack, backends: Mapping[str, BackendTrack], routed: Routed
) -> tuple[tuple[RouterTrack, Group] | None, tuple[Peer, ...]]:
    """Return the router in front of a backend and the servers to compare the backend with behind it."""
    name, model = track.target.name, track.view.model
    for router, group in routed:
        if name not in group.backends:
            continue
        others = (backends[other] for other in group.backends if other != name and other in backends)
        beside = [
            other
            for other in others
            if other.view.model == model and other.role is track.role and _is_serving(other)
        ]
        by_load = sorted((other for other in beside if other.work.polls), key=_requests_at)
        chosen = dict.fromkeys((*by_load[:_MOST_PEERS], *by_load[-_MOST_PEERS:]))
        return (router, group), tuple(
            Peer(peer.target.name, tuple(peer.work.polls), peer.view.slots) for peer in chosen
        )
    return None, ()


def _unmatched_router(track: BackendTrack, routed: Routed) -> str | None:
    """Return the name of a router that answers and may be in front of a backend; None if there is none.

    No watched backend is known to be behind it, and it lists no deployments, or one of the backend's model.
    """
    served = {*track.served_models, track.view.model}
    for router, group in routed:
        listed = router.sample.deployments
        offers = listed is None or any(deployment.may_ask_for(served) for deployment in listed)
        is_alive = router.health.failure is None and router.health.good_at is not None
        if is_alive and not group.backends and offers:
            return router.target.name
    return None


def _is_routed(router: RouterTrack, behind: Sequence[BackendTrack]) -> bool | None:
    """Return whether the router's own counts show that the requests of the backends `behind` it pass it."""
    newest = max((track.work.polls[-1].at for track in behind), default=math.inf)
    return router.passes([track.load for track in behind], newest - _ROUTED_S)


def _requests_held_back(router: RouterTrack, behind: Sequence[BackendTrack]) -> float | None:
    """Return how many requests are in the router and at none of those `behind` it; None if not counted."""
    if router.sample.in_flight is None:
        return router.sample.queued
    return max(0.0, router.sample.in_flight - sum(_requests_at(track) for track in behind))


def _requests_at(track: BackendTrack) -> float:
    poll = track.work.polls[-1]
    return (poll.running or 0.0) + (poll.waiting or 0.0)


def _is_serving(track: BackendTrack) -> bool:
    """Return whether a backend answers and makes progress: a router did not choose what a stuck one holds."""
    return track.health.failure is None and track.view.state not in STUCK
