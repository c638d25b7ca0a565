"""Names what holds a server back, from its polls, its machines and the servers beside it.

The order of the rules is their strength. A machine whose clock is pinned, a full CPU core or a full link make
everything else look slow, so they come first. Then comes what makes requests wait, and last, where nothing
waits, what the steps themselves are limited by. Where figures are missing or contradict each other, the limit
is unknown, and the reason says what is missing.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import combinations, pairwise
from math import floor
from operator import add, mul
from statistics import fmean, median_high
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from sparktop.analysis.bandwidth import FEW_READS_PERCENT, reads_words
from sparktop.analysis.evidence import Evidence, MachinePoll, Peer, Poll, growth, prefill_s
from sparktop.analysis.speed_state import SLOW_CLOCK, THROTTLED
from sparktop.analysis.stall import GB10_POWER_W
from sparktop.analysis.state import RECENT_S
from sparktop.graphics.numbers import count_words
from sparktop.model.balance import Balance, BalanceWord, balance_cost
from sparktop.model.series import known_mean, known_median, known_values
from sparktop.model.snapshot import Limit, LimitKind

FEWEST_POLLS = 8
"""With fewer polls there is no verdict."""
_FULL_PERCENT = 95.0
"""The KV cache was this full at least when a request was preempted."""
_POLL_JITTER_S = 0.5
"""A poll that is older than a window by so much still belongs to it: polls do not come at exact intervals."""
_MOST_PASSING = 2.0
"""A queue only passes through while it holds at most this many times the requests that arrive during a mean
step. Each waits for the end of the present step, and steps that compute prompts last longer than the mean."""


class ServerLoad(Struct, frozen=True):
    """The load of a server over `span_s` seconds. Shares are of polls, 0 to 1; means are over polls."""

    span_s: float
    running: float
    """Mean of running requests."""
    running_most: float
    waiting: float
    """Mean of waiting requests over the polls in which some waited; 0 if none ever did."""
    queued: float
    """Share of the polls in which requests waited."""
    deferred: float
    """Share of the waiting requests that would not run even if there were room."""
    idle: float
    """Share of the polls in which no request ran."""
    kv_percent: float | None
    """Mean KV cache usage over the polls in which requests waited, or over all if none ever did."""
    usual: float
    """Median of running requests over the polls in which some waited; 0 if none ever did."""
    preempted: float | None
    """Preemptions that were reported or, if they are more, seen; None if neither is known."""
    prompt_tokens: float | None
    """Mean computed prompt tokens of a finished request; None if none finished."""
    prompt_tps: float | None
    step_s: float | None
    """Mean seconds from step to step; None if steps are not counted."""
    batch: float | None
    """Mean number of tokens that a step generated."""
    arrivals_per_step: float | None
    """Requests that arrive during a mean step, taken to be as many as finish; None if unknown."""
    prompt_share: float | None = None
    """Share of the time in which prompts were computed, by the server's own count; None if it has none."""
    prefill_s: float | None = None
    """Seconds up to the newest poll in which only prompts were computed; None while tokens are generated."""

    @property
    def is_passing(self) -> bool:
        """Whether the waiting requests are only those that wait for the end of the present step."""
        if self.arrivals_per_step is None:
            return False
        mean_waiting = self.waiting * self.queued  # over all polls, not only those in which some waited
        return mean_waiting <= _MOST_PASSING * self.arrivals_per_step


_AnyPoll = TypeVar("_AnyPoll", Poll, MachinePoll)


def newest_polls(polls: Sequence[_AnyPoll], span_s: float) -> tuple[_AnyPoll, ...]:
    """Return the polls of the newest `span_s` seconds."""
    since = polls[-1].at - span_s - _POLL_JITTER_S if polls else 0.0
    return tuple(poll for poll in polls if poll.at >= since)


def load_of(polls: Sequence[Poll], window_s: float = 30.0) -> ServerLoad | None:
    """Return the load over the newest `window_s` seconds of `polls`.

    None if there are fewer than `FEWEST_POLLS` polls, or if running or waiting requests are not reported.
    """
    recent = newest_polls(polls, window_s)
    complete = [poll for poll in recent if poll.running is not None and poll.waiting is not None]
    if len(complete) < FEWEST_POLLS or len(complete) < len(recent) / 2:
        return None
    running = [poll.running or 0.0 for poll in complete]
    queued_polls = [poll for poll in complete if poll.waiting]
    waiting = sum(poll.waiting or 0.0 for poll in queued_polls)
    # Where an engine does not tell them apart, all waiting requests wait for room.
    for_room = [poll.waiting if poll.for_capacity is None else poll.for_capacity for poll in queued_polls]
    waiting_for_room = sum(known_values(for_room))
    first, last = complete[0], complete[-1]
    span_s = last.at - first.at
    steps, generated = growth(first.steps, last.steps), growth(first.generated, last.generated)
    prompted, finished = growth(first.prompted, last.prompted), growth(first.finished, last.finished)
    kv_percents = known_values(poll.kv_percent for poll in queued_polls or complete)
    return ServerLoad(
        span_s=span_s,
        running=sum(running) / len(complete),
        running_most=max(running),
        waiting=waiting / len(queued_polls) if queued_polls else 0.0,
        queued=len(queued_polls) / len(complete),
        deferred=max(0.0, 1 - waiting_for_room / waiting) if waiting else 0.0,
        idle=sum(count == 0 for count in running) / len(complete),
        kv_percent=sum(kv_percents) / len(kv_percents) if kv_percents else None,
        usual=median_high([poll.running or 0.0 for poll in queued_polls] or [0.0]),
        preempted=_preemptions(complete),
        prompt_tokens=_per(prompted, finished),
        prompt_tps=_per(prompted, span_s),
        step_s=_per(span_s, steps),
        batch=_per(generated, steps),
        arrivals_per_step=_per(finished, steps),
        prompt_share=_share_of_time(growth(first.prefilled_s, last.prefilled_s), span_s),
        prefill_s=prefill_s(polls),
    )


def _per(amount: float | None, count: float | None) -> float | None:
    """Return an amount for each of `count`; None where either is unknown or there is none."""
    return amount / count if amount is not None and count else None


def _share_of_time(part_s: float | None, span_s: float) -> float | None:
    """Return `part_s` as a share of `span_s`, at most 1: prompts of several requests are computed at once."""
    return None if part_s is None or span_s <= 0 else min(1.0, part_s / span_s)


def _preemptions(polls: Sequence[Poll]) -> float | None:
    """Return the preemptions that were reported, or those that were seen if these are more.

    vLLM reports a preemption when the request runs again, which may take minutes.
    """
    reported = growth(polls[0].preempted, polls[-1].preempted)
    preemptions = sum(_preemptions_seen(*pair) for pair in pairwise(polls))
    return max(reported or 0.0, preemptions) if preemptions else reported


def _preemptions_seen(before: Poll, after: Poll) -> float:
    """Return how many requests went from running to waiting without an end while the KV cache was full."""
    fewer_running = (before.running or 0.0) - (after.running or 0.0)
    more_waiting = (after.waiting or 0.0) - (before.waiting or 0.0)
    ended = growth(before.finished, after.finished)
    if ended is None or after.kv_percent is None or not after.running:
        return 0.0
    moved = min(fewer_running - ended, more_waiting)
    # The later poll shows the cache without them: each is taken to have held as much as one that still runs.
    kv_percent_before = after.kv_percent * (1 + fewer_running / after.running)
    return moved if moved > 0 and kv_percent_before >= _FULL_PERCENT else 0.0


# Limits outside the engine: clock and power of its machines, one CPU core, the network between its ranks.


BUSY_GPU_PERCENT = 80.0
"""A GPU with requests all the time that is used less waits for something else."""
_FULL_CORE_PERCENT = 88.0
"""A core whose median use over the samples is this much is full: threads move between cores."""
_FULL_CORE_SHARE = 0.9
"""CPU cores that a process with one busy thread uses when that thread never waits."""
_FEWEST_SAMPLES = 2
"""Samples of a machine from which on its GPU is judged."""
_THROTTLED_SHARE = 0.8
"""A throttled clock is a limit below this share of the clock that the GPU has reached under load."""
LINK_SHARE = 0.4
"""Share of the time that the link between ranks is in use from which on it is the largest part of a step."""


def sees_clock(evidence: Evidence) -> bool:
    """Return whether the clock of each machine's GPU is read, and with several machines the link between.

    A machine that is read without its GPU, or without that link, cannot show whether it is slow.
    """
    several = evidence.spans > 1
    seen_count = sum(
        any(poll.clock_mhz is not None for poll in machine.polls)
        and (not several or any(poll.link_share is not None for poll in machine.polls))
        for machine in evidence.machines
    )
    return seen_count >= evidence.spans


def sees_cores(evidence: Evidence) -> bool:
    """Return whether the use of each machine's CPU cores is read."""
    count = sum(any(poll.core_percent is not None for poll in machine.polls) for machine in evidence.machines)
    return count >= evidence.spans


def gpu_percent(evidence: Evidence) -> float | None:
    """Return the mean use in percent of the busiest GPUs of all machines; None if one of them is unknown."""
    if not evidence.machines or len(evidence.machines) < evidence.spans:
        return None
    means = [known_mean(poll.gpu_percent for poll in machine.polls) for machine in evidence.machines]
    return known_mean(means) if None not in means else None


def gpu_at_work(evidence: Evidence) -> float | None:
    """Return the mean use in percent of the GPUs over `RECENT_S`, since the server last had no request.

    None below `BUSY_GPU_PERCENT`, if unknown, or if requests have only just come.
    """
    last_empty_at = max((poll.at for poll in evidence.polls if not poll.running), default=-math.inf)
    machines = tuple(
        replace(machine, polls=tuple(poll for poll in machine.polls if poll.at > last_empty_at))
        for machine in evidence.machines
    )
    if any(len(machine.polls) < _FEWEST_SAMPLES for machine in machines):
        return None
    used_percent = gpu_percent(_within_window(replace(evidence, machines=machines, window_s=RECENT_S)))
    return used_percent if used_percent is not None and used_percent >= BUSY_GPU_PERCENT else None


def power_limit(evidence: Evidence) -> Limit | None:
    """Return the limit by a machine whose clock is far below what its GPU can do; None if there is none."""
    for machine in evidence.machines:
        word = machine.speed.word
        clock = known_mean(poll.clock_mhz for poll in machine.polls)
        usual = machine.usual_mhz
        low = clock is not None and usual is not None and clock < _THROTTLED_SHARE * usual
        if word == SLOW_CLOCK or (word == THROTTLED and low):
            where = f"{machine.name}: " if evidence.spans > 1 else ""
            reason = f"{where}{machine.speed.reason}"
            return Limit(LimitKind.POWER, reason, None, clock, usual, "MHz")
    return None


def cpu_limit(evidence: Evidence) -> Limit | None:
    """Return the limit by a full CPU core while the GPU waits; None if there is none.

    The caller has checked that requests run all the time.
    """
    gpu_use = gpu_percent(evidence)
    if gpu_use is not None and gpu_use > BUSY_GPU_PERCENT:
        return None
    waits = "" if gpu_use is None else f", the GPU is busy only {gpu_use:.0f} % of the time"
    server = evidence.server_cores
    if server is not None and server >= _FULL_CORE_SHARE:
        reason = f"the HTTP server uses {server:.2f} cores{waits}"
        return Limit(LimitKind.CPU, reason, None, 100 * server, 100.0, "%")
    if gpu_use is None:
        return None
    for machine in evidence.machines:
        full = known_median(poll.core_percent for poll in machine.polls) or 0.0
        if full >= _FULL_CORE_PERCENT:
            where = f" of {machine.name}" if evidence.spans > 1 else ""
            return Limit(LimitKind.CPU, f"one{where} is {full:.0f} % used{waits}", None, full, 100.0, "%")
    return None


def slow_link_limit(evidence: Evidence) -> Limit | None:
    """Return the limit by a link for which the ranks of one engine wait; None if none is known."""
    slow = evidence.slow_link
    if slow is None:
        return None
    carried, ceiling = slow.values.get("rdma_bytes_per_s"), slow.values.get("ceiling_bytes_per_s")
    carried_gb = carried / 1e9 if isinstance(carried, float) else None
    ceiling_gb = ceiling / 1e9 if isinstance(ceiling, float) else None
    return Limit(LimitKind.NETWORK, slow.line, None, carried_gb, ceiling_gb, "GB/s")


def busy_link_limit(evidence: Evidence) -> Limit | None:
    """Return the limit by a busy link between the machines of one engine; None if none is known."""
    if evidence.spans < 2:  # noqa: PLR2004 - ranks on one machine do not use the network
        return None
    for machine in evidence.machines:
        share = known_mean(poll.link_share for poll in machine.polls)
        if share is None or share < LINK_SHARE:
            continue
        carried = known_mean(poll.link_bytes_per_s for poll in machine.polls) or 0.0
        name = next((poll.link for poll in reversed(machine.polls) if poll.link), "link")
        limit = carried / share
        rates = f"{carried / 1e9:.3g} of {limit / 1e9:.3g} GB/s"
        reason = f"{name} of {machine.name} carries {rates} on average"
        return Limit(LimitKind.NETWORK, reason, None, carried / 1e9, limit / 1e9, "GB/s")
    return None


# Limits that make requests wait: an uneven split over several servers, slots, and the KV cache.


_APART_S = 1.6
"""Polls of two servers are compared if they are at most this far apart."""
_FEWEST_HELD = 4
"""Requests that a server must hold before an idle server beside it means anything."""
_IDLE_BESIDE = 0.25
"""A server beside one with many requests counts as idle up to this share of its requests."""
_OFTEN = 0.6
"""Share of the polls in which one server must be loaded and another idle."""
_TIGHT = 2.0
"""Multiple of the mean prompt that may not fit: the longest prompts wait longest."""
_SLOTS_FULL = 0.98
"""Share of the slots from which on they count as full: a request has just ended, the next has not begun."""


def split_limit(evidence: Evidence) -> Limit | None:
    """Return the limit by requests that are split unevenly over this server and others; None if they are not.

    The verdict on the group's balance decides, so that a server's limit never contradicts it. The router is
    blamed only where its own counts show that the requests pass it. Where the balance cannot be judged, or
    the router does not count, a plain difference between two servers is stated without a culprit. A level of
    a sweep has no verdict on its balance, but all its requests pass the router.
    """
    split = evidence.split
    if split is not None and split.in_sweep and not evidence.routed:
        return None  # the sweep chose what each server has
    if split is not None and split.word in _UNEVEN and _is_about_this_server(evidence, split):
        cost = balance_cost(split)
        line = f"{split.group} is {split.word.value}{cost and f', {cost}'}"
        if evidence.routed:
            return Limit(LimitKind.ROUTER, line, None, split.lost_percent, None, "%")
        return _unknown_limit(line)
    judged_even = split is not None and split.word is split.word_now is BalanceWord.BALANCED
    if evidence.router is None or judged_even:
        return None
    own_polls = newest_polls(evidence.polls, evidence.window_s)
    for peer in evidence.peers:
        pairs = _simultaneous_polls(own_polls, peer.polls)
        uneven_pairs = _uneven_pairs(pairs, evidence, peer)
        if uneven_pairs and len(pairs) >= len(own_polls) / 2 and len(uneven_pairs) >= _OFTEN * len(pairs):
            return _uneven_limit(evidence, peer, uneven_pairs)
    return None


def _uneven_pairs(
    pairs: Sequence[tuple[Poll, Poll]], evidence: Evidence, peer: Peer
) -> list[tuple[Poll, Poll]]:
    """Return the simultaneous polls of a server and a peer of which one could take requests of the other."""
    return [
        (poll, other)
        for poll, other in pairs
        if _could_take_requests(poll, other, slots=peer.slots)
        or _could_take_requests(other, poll, slots=evidence.slots)
    ]


_UNEVEN = {BalanceWord.OSCILLATING, BalanceWord.STARVED}


def _is_about_this_server(evidence: Evidence, split: Balance) -> bool:
    """Return whether a verdict on the group is about this server: of a starved one, only some are."""
    # Of two servers, one has too little and so the other too much.
    if split.word is BalanceWord.OSCILLATING or len(split.backends) == 2:  # noqa: PLR2004 - a pair
        return True
    own_polls = newest_polls(evidence.polls, evidence.window_s)
    return any(
        _uneven_pairs(_simultaneous_polls(own_polls, peer.polls), evidence, peer) for peer in evidence.peers
    )


def _uneven_limit(evidence: Evidence, peer: Peer, pairs: Sequence[tuple[Poll, Poll]]) -> Limit:
    """Return the limit of a server that has far more or fewer requests than `peer`, at the times `pairs`."""
    own_mean, peer_mean = (sum(_requests_at(pair[side]) for pair in pairs) / len(pairs) for side in (0, 1))
    heavier = sum(_requests_at(poll) > _requests_at(other) for poll, other in pairs)
    if min(heavier, len(pairs) - heavier) > len(pairs) / 5:  # each is the heavier one often, not by chance
        mean_higher = fmean(max(map(_requests_at, pair)) for pair in pairs)
        mean_lower = fmean(min(map(_requests_at, pair)) for pair in pairs)
        line = f"two servers take turns, {mean_higher:.0f} requests at one and {mean_lower:.0f} at the other"
    else:
        line = f"on average {count_words(own_mean, 'request')} here and {peer_mean:.0f} at {peer.name}"
    split, even = evidence.split, (own_mean + peer_mean) / 2
    if evidence.routed and (split is None or split.word.bad):
        hint = f"even would be {even:.0f} each"
        return Limit(LimitKind.ROUTER, line, hint, own_mean, even, "requests")
    return Limit(LimitKind.UNKNOWN, f"loads differ, {line}", None, own_mean, even, "requests")


def _simultaneous_polls(mine: Sequence[Poll], others: Sequence[Poll]) -> list[tuple[Poll, Poll]]:
    """Return each poll of a server with the poll of another server that is nearest in time."""
    times = [poll.at for poll in others]
    pairs = []
    for poll in mine:
        index = bisect_left(times, poll.at)
        neighbours = others[max(0, index - 1) : index + 1]
        nearest = min(neighbours, key=lambda other: abs(other.at - poll.at), default=None)
        are_reported = nearest is not None and None not in {poll.running, nearest.running}
        if nearest is not None and are_reported and abs(nearest.at - poll.at) <= _APART_S:
            pairs.append((poll, nearest))
    return pairs


def _could_take_requests(loaded: Poll, other: Poll, *, slots: int | None) -> bool:
    """Return whether `other` could take requests that `loaded` has, at one moment.

    It is nearly idle beside it, or `loaded` lets requests wait while half of the `slots` of `other` are free.
    """
    ours, other_held = _requests_at(loaded), _requests_at(other)
    if ours < _FEWEST_HELD or other.waiting:
        return False
    half_free = slots is not None and other_held <= slots / 2
    return other_held <= _IDLE_BESIDE * ours or bool(loaded.waiting and half_free and other_held <= ours / 2)


def _requests_at(poll: Poll) -> float:
    return (poll.running or 0.0) + (poll.waiting or 0.0)


def slots_limit(evidence: Evidence, load: ServerLoad) -> Limit | None:
    """Return the limit by the most requests that the server runs at once; None if there is none.

    Where that number is not known, it is inferred: the running requests stay at their maximum while others
    wait, although the KV cache has room for the next.
    """
    slots, peak = evidence.slots, load.running_most
    if not _slots_are_full(evidence, load):
        return None
    if slots is not None:
        reason = f"{peak:.0f} of {slots} run, {load.waiting:.0f} wait on average"
    else:
        reason = f"never more than {peak:.0f} run, while {load.waiting:.0f} wait on average"
    kv = load.kv_percent
    if kv is not None:
        reason += f"; KV cache {kv:.0f} %"
    return Limit(LimitKind.SLOTS, reason, _room_text(load), peak, float(slots or peak), "requests")


def _slots_are_full(evidence: Evidence, load: ServerLoad) -> bool:
    """Return whether all slots are in use while requests wait, or seem to be where their number is unknown.

    Between two requests a slot seems free while the next one's prompt is computed: one slot of each engine
    core, and usually of half of the cores at a time. (Were it more, prompts would be the limit.)
    """
    highest, cores, slots = load.running_most, evidence.cores, evidence.slots
    usually_seem_free, may_seem_free = cores // 2, cores
    stays_at_highest = load.usual >= highest - usually_seem_free
    if slots is None:
        return stays_at_highest and not kv_is_tight(evidence, load)
    if highest < min(_SLOTS_FULL * slots, slots - usually_seem_free):
        return False
    return stays_at_highest or (load.usual >= slots - may_seem_free and not kv_is_tight(evidence, load))


def _room_text(load: ServerLoad) -> str | None:
    """Return for how many more requests of the present length the KV cache has room, in words."""
    if load.kv_percent is None or not load.running_most or load.kv_percent <= 0:
        return None
    kv_percent_each = load.kv_percent / load.running_most  # of the caches of all engine cores together
    more = max(0, floor((_FULL_PERCENT - load.kv_percent) / kv_percent_each))
    return f"room for about {more:,} more of this length"


def kv_limit(evidence: Evidence, load: ServerLoad) -> Limit | None:
    """Return the limit by the KV cache: requests are preempted, or the next one does not fit."""
    kv = load.kv_percent
    if load.preempted:
        full = "" if kv is None else f"{kv:.0f} % used on average, "
        times = "preemption" if round(load.preempted) == 1 else "preemptions"
        reason = f"{full}{load.preempted:.0f} {times} in {load.span_s:.0f} s"
        return Limit(LimitKind.KV, reason, _fit_text(evidence, load), kv, 100.0, "%")
    if kv is None or not kv_is_tight(evidence, load):
        return None
    usage_words = f"{kv:.0f} % used by {load.running:.0f} requests, {100 - kv:.0f} % free"
    reason = f"{usage_words}; {load.waiting:.0f} wait on average"
    return Limit(LimitKind.KV, reason, _fit_text(evidence, load), kv, 100.0, "%")


def kv_is_tight(evidence: Evidence, load: ServerLoad) -> bool:
    """Return whether the free part of the KV cache is too small for the next prompt.

    A prompt's share is computed from the mean prompt and the capacity, or else from what running requests
    hold on average. The next request may also be a preempted one, which needs as much as it held.
    """
    kv, capacity = load.kv_percent, evidence.kv_capacity_tokens
    if kv is None or not load.running:
        return False
    # `kv` and the capacity are of one engine core, which runs its part of the requests.
    held_percent = kv / load.running * evidence.cores
    prompt_percent = held_percent
    if load.prompt_tokens and capacity:
        prompt_percent = 100 * load.prompt_tokens / capacity
    return 100.0 - kv <= max(_TIGHT * min(prompt_percent, held_percent), held_percent)


def pool_limit(evidence: Evidence, load: ServerLoad) -> Limit | None:
    """Return the limit by a pool of memory beside the KV cache that is full; None if none is."""
    for kind, percent, subject in (
        (LimitKind.KV, evidence.swa_percent, "SWA pool {:.0f} % full"),
        (LimitKind.SLOTS, evidence.states_percent, "states {:.0f} % full, of which each request has one"),
    ):
        if percent is not None and percent >= _FULL_PERCENT:
            reason = f"{subject.format(percent)}; {load.waiting:.0f} wait on average"
            return Limit(kind, reason, None, percent, 100.0, "%")
    return None


def _fit_text(evidence: Evidence, load: ServerLoad) -> str | None:
    """Return the part of its DP rank's KV cache that a request takes, and how many fit into the server."""
    if not load.kv_percent or not load.running:
        return None
    where = "" if evidence.cores == 1 else " of its DP rank's KV cache"
    kv_percent_each = load.kv_percent / load.running * evidence.cores
    fit = floor(100 * evidence.cores / kv_percent_each)
    return f"a request takes {kv_percent_each:.1f} %{where} on average: about {fit} fit"


# Limits inside the engine's steps, and the client or router that sends too little.


IDLE_SHARE = 0.1
"""Share of the polls without a running request from which on the client is the limit."""
_NEWEST_SHARE = 1 / 3
"""Newest part of the window in which the server must have been without a request too: what has changed since
is no limit any more."""
_FEWEST_UNSEEN = 3
"""Fewest intervals between polls without a request in which prompts were computed all the same."""
_HELD_BACK = 2.0
"""Requests inside a router from which on it holds them back: one may be on its way."""
PROMPTS = 0.5
"""Share of the time that prompts take from which on they are the limit."""
PROMPTS_ALONE = 0.7
"""The same share where slots are full too: below it, more slots would still help."""
_ENOUGH_SPREAD = 0.08
"""Least variation of the batch from which on the fixed part of a step and the growing part are separable."""
_WIDE_SPREAD = 0.25
"""The same from which on the growth of a step also tells what twice the requests would give."""
_FLAT, _STEEP = 0.55, 0.3
"""A decode step of which at least `_FLAT` is fixed is limited by reading weights, one of which at most
`_STEEP` is fixed by computing."""
_READS = 55.0
"""Percentage of the memory bandwidth from which on reads name it as the limit."""
_FEW_ROWS = 64.0
"""Tokens in a step up to which a GPU that is busy all the time reads rather than computes: a GB10 computes
about 115 rows of 4-bit weights while it reads them, and GPUs with faster memory about 150 of 8 bits."""
_UNEXPLAINED = 0.5
"""A regression that leaves a larger part of the time unexplained is not used."""


def client_limit(load: ServerLoad, evidence: Evidence) -> Limit | None:
    """Return the limit by a client that leaves the server without requests for part of the time.

    With a router in front, that may be the router, unless its own counts tell which. None if the server has
    had requests throughout the newest part of the window, or if requests wait at it or fill its slots now.
    """
    if load.idle < IDLE_SHARE or not _is_short_of_requests(evidence):
        return None
    if _computes_unseen(evidence):
        return _unseen_limit(evidence, load)
    percent = 100 * load.idle
    reason = f"no request in {percent:.0f} % of the time{'' if load.queued else '; none waits'}"
    if load.running_most == 0:
        reason = f"no request in {load.span_s:.0f} s"
    kind, suffix = _who_sends_too_little(evidence)
    return Limit(kind, f"{reason}{suffix}", None, percent, 100.0, "%")


def _computes_unseen(evidence: Evidence) -> bool:
    """Return whether a server that shows no request computes prompts all the same, and no tokens.

    Engines report their requests at the end of a step, when those of embeddings and rankings have ended.
    """
    polls = newest_polls(evidence.polls, evidence.window_s)
    empty = [(before, after) for before, after in pairwise(polls) if not before.running and not after.running]
    unseen = [
        pair
        for pair in empty
        if (growth(pair[0].prompted, pair[1].prompted) or growth(pair[0].finished, pair[1].finished))
        and not growth(pair[0].generated, pair[1].generated)
    ]
    return len(unseen) >= max(_FEWEST_UNSEEN, len(empty) / 2)


def _unseen_limit(evidence: Evidence, load: ServerLoad) -> Limit:
    """Return the limit of a server whose requests are too short to be seen, by the use of its GPU."""
    percent, rate = gpu_percent(evidence), "" if not load.prompt_tps else f" at {load.prompt_tps:,.0f} tok/s"
    reason = f"requests too short to be seen compute prompts{rate}"
    if percent is None or evidence.neighbours:
        return _unknown_limit(f"{reason}: only a GPU of its own shows whether it is full")
    reason = f"{reason}; the GPU is {percent:.0f} % busy"
    if percent >= BUSY_GPU_PERCENT:
        return Limit(LimitKind.PREFILL, reason, None, percent, 100.0, "%")
    kind, suffix = _who_sends_too_little(evidence)
    return Limit(kind, f"{reason}{suffix}", None, 100.0 - percent, 100.0, "%")


def _is_short_of_requests(evidence: Evidence) -> bool:
    """Return whether the server lacked requests of late, and has free slots and no queue now."""
    newest = evidence.polls[-1]
    if newest.waiting or (evidence.slots and (newest.running or 0.0) >= evidence.slots):
        return False
    recent = newest_polls(evidence.polls, evidence.window_s * _NEWEST_SHARE)
    return any(poll.running == 0 and not poll.waiting for poll in recent)


def _who_sends_too_little(evidence: Evidence) -> tuple[LimitKind, str]:
    """Return the kind of the limit of a server that lacks requests, and what the router shows, in words."""
    # `routed` is None where the router does not count what it sends, `held` where not what it has.
    name, held_count, split = evidence.router, evidence.requests_in_router, evidence.split
    if split is not None and split.in_sweep:
        return LimitKind.CLIENT, "; this level of the sweep sends no more"
    if name is None and evidence.unmatched_router is not None:
        return LimitKind.CLIENT_OR_ROUTER, f"; the servers behind {evidence.unmatched_router} are not known"
    if name is None or evidence.routed is False:
        return LimitKind.CLIENT, ""
    slow = "" if evidence.slow_router is None else f"; {name} is slow: {evidence.slow_router}"
    if held_count is not None and held_count >= _HELD_BACK:
        return LimitKind.ROUTER, f"; {held_count:.0f} requests are still in {name}{slow}"
    if slow:
        return (LimitKind.ROUTER if evidence.routed else LimitKind.CLIENT_OR_ROUTER), slow
    kind = LimitKind.CLIENT_OR_ROUTER if held_count is None else LimitKind.CLIENT
    return kind, ""


def held_back_limit(evidence: Evidence, load: ServerLoad) -> Limit | None:
    """Return the limit of a server with free slots whose router holds more requests than it; else None.

    These may wait in the router, or for clients that take their answers slowly.
    """
    held_count, slots, newest = evidence.requests_in_router, evidence.slots, evidence.polls[-1]
    if held_count is None or slots is None or evidence.router is None or newest.waiting:
        return None
    if evidence.routed is False:
        return None
    if held_count < max(_HELD_BACK, load.running) or load.running_most > slots / 2:
        return None
    run = f"{load.running:.0f} of {slots} slots run on average"
    reason = f"{held_count:.0f} requests are in {evidence.router} and at no server; {run}"
    return Limit(LimitKind.CLIENT_OR_ROUTER, reason, None, held_count, None, "requests")


def long_prefill_limit(load: ServerLoad) -> Limit | None:
    """Return the limit by the prompts that are computed now, while no token comes; None if there are none."""
    if load.prefill_s is None:
        return None
    reason = f"no token in the last {load.prefill_s:.0f} s while the KV cache fills: prompts are computed"
    return Limit(LimitKind.PREFILL, reason, None, 100.0, 100.0, "%")


def prefill_limit(load: ServerLoad, cost: StepFit | None, least: float = PROMPTS) -> Limit | None:
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


def step_limit(evidence: Evidence, load: ServerLoad, cost: StepFit | None) -> Limit:
    """Return what limits steps of decoding; unknown where figures are missing or contradict each other."""
    if cost is None:
        at_end = "it counts tokens only as requests end, which shows no steps"
        too_few = "too few engine steps were counted to tell"
        return _unknown_limit(at_end if evidence.counts_at_end else too_few)
    if cost.unexplained > _UNEXPLAINED:
        return _unknown_limit("its steps take longer and shorter times than their sizes explain")
    flat = cost.sure_flatness
    missing = _why_not_judged(evidence, cost, flat)
    if missing is not None:
        return _unknown_limit(missing)
    if flat is not None and flat <= _STEEP:
        added = f"{1000 * cost.per_token_s:.1f} ms"
        return Limit(LimitKind.DECODE, f"each request adds {added} to a step of {1000 * cost.step_s:.0f} ms")
    return _bandwidth_limit(evidence, load, cost, flat)


def _why_not_judged(evidence: Evidence, cost: StepFit, flat: float | None) -> str | None:
    """Return what is missing or contradictory, so that steps cannot be judged; None if they can.

    `flat` is the part of a step that is fixed, 0 to 1; None if it is not known.
    """
    used_percent, reads = gpu_percent(evidence), evidence.read_percent
    if (power := _waiting_ranks_w(evidence)) is not None:
        return f"its GPUs wait ({power:.0f} W each): whether for the link or each other is not clear yet"
    if used_percent is not None and used_percent < BUSY_GPU_PERCENT:
        cores = ", no CPU core is full" if sees_cores(evidence) else ""
        return f"the GPU is busy only {used_percent:.0f} % of the time{cores}"
    if cost.prompt_share > 1 - PROMPTS:
        return f"prompts take {100 * cost.prompt_share:.0f} % of the time, decoding the rest"
    if reads is not None and reads >= _READS and (flat is None or flat > _STEEP):
        return None
    if used_percent is None:
        return "whether its GPU waits is not seen: watch its machine"
    return _why_unclear(evidence, cost, flat)


def _waiting_ranks_w(evidence: Evidence) -> float | None:
    """Return the most power of a GPU of an engine on several machines if none of them computes, else None."""
    powers = [known_mean(poll.gb10_power_w for poll in machine.polls) for machine in evidence.machines]
    computes_from_w, _ = GB10_POWER_W
    measured_w = known_values(powers)
    if evidence.spans == 1 or len(measured_w) < evidence.spans or max(measured_w) >= computes_from_w:
        return None
    return max(measured_w)


def _why_growth_unknown(evidence: Evidence, cost: StepFit) -> str | None:
    """Return why it is not known how steps grow with their batch; None if it is so small that they read."""
    reads, same_sizes = evidence.read_percent, cost.batch_spread < _ENOUGH_SPREAD
    looks_flat = same_sizes or (cost.flatness or 0.0) >= _FLAT
    if cost.batch <= _FEW_ROWS and looks_flat and reads is None and evidence.spans == 1:
        return None  # so few rows are computed while the weights are read
    if not same_sizes:
        return "batches varied too little to tell memory from compute"
    read_words = "" if reads is None else f"; they read {reads:.0f} % of the memory bandwidth"
    return f"every step had {_requests_text(cost.batch)}, other batches are needed{read_words}"


def _why_unclear(evidence: Evidence, cost: StepFit, flat: float | None) -> str | None:
    """Return why it is not clear whether steps read or compute, of a server whose reads do not show it."""
    reads = evidence.read_percent
    if flat is None:
        return _why_growth_unknown(evidence, cost)
    if _STEEP < flat < _FLAT:
        grows = 100 * (1 - flat)
        return f"memory bandwidth or compute, both fit: {grows:.0f} % of a step grows with its requests"
    if flat >= _FLAT and evidence.spans > 1 and reads is None:
        return "memory bandwidth or network: the server does not estimate its memory reads"
    if flat >= _FLAT and reads is not None and reads < FEW_READS_PERCENT:
        return f"steps take equally long for any batch, yet read only {reads:.0f} % of the memory bandwidth"
    return None


def _unknown_limit(reason: str) -> Limit:
    return Limit(LimitKind.UNKNOWN, reason)


def _requests_text(count: float) -> str:
    return "1 request" if round(count) == 1 else f"{count:.0f} requests"


def _bandwidth_limit(evidence: Evidence, load: ServerLoad, cost: StepFit, flat: float | None) -> Limit:
    """Return the limit by the memory bandwidth, with the figures that show it."""
    read, percent = evidence.read_gb_per_s, evidence.read_percent
    parts, value, limit, unit = [], None, None, None
    step_s, batch = load.step_s or cost.step_s, load.batch or cost.batch
    step = f"a step takes {1000 * step_s:.0f} ms with {_requests_text(batch)} on average"
    if read is not None and percent:
        value, limit, unit = read, 100 * read / percent, "GB/s"
        where = " over all DP ranks" if evidence.cores > 1 else " on each machine"
        parts.append(f"{reads_words(value, limit)}{where if evidence.spans > 1 else ''}")
    if flat is not None:
        parts.append(step)
    if not parts:
        parts.append(f"{step}: far fewer than would keep the GPU computing")
    known_flat = flat if cost.batch_spread >= _WIDE_SPREAD else None
    hint = _free_slots_hint(evidence, load, known_flat)
    return Limit(LimitKind.BANDWIDTH, "; ".join(parts), hint, value, limit, unit)


def _free_slots_hint(evidence: Evidence, load: ServerLoad, flat: float | None) -> str | None:
    """Return how many slots are free, and what twice the requests would gain if a step's fixed part is known.

    A step of which the part `flat` is fixed takes 2 - `flat` times as long with twice the requests.
    """
    if evidence.slots is None or load.running >= evidence.slots / 2:
        return None
    free = f"{evidence.slots - load.running:.0f} of {evidence.slots} slots free on average"
    if flat is None:
        return free
    return f"{free}: twice the requests give about {2 / (2 - min(1.0, flat)):.1f} × the tok/s"


# The verdict: the rules in the order of their strength.


_QUEUED = 0.5
"""Share of the polls in which requests wait from which on the limit is what makes them wait."""
_SELDOM_QUEUED = 0.2
"""Up to this share of the polls with waiting requests, the limit is sought in the steps or the client."""

_SLOWED = {LimitKind.SLOTS, LimitKind.PREFILL}
"""What a slow machine seems to be limited by: on it, requests stay longer, and prompts take longer."""


def limited_by(evidence: Evidence) -> Limit | None:
    """Return what holds a server back; None while there are too few polls to judge by."""
    if evidence.polls and evidence.polls[-1].running is None:
        return Limit(LimitKind.UNKNOWN, "the server does not report how many requests run")
    load = load_of(evidence.polls, evidence.window_s)
    if load is None:
        return None
    evidence = _within_window(evidence)
    limit = _limit_outside(evidence, load) or _limit_inside(evidence, load)
    return replace(_unknown_if_unwatched(evidence, limit), window_s=load.span_s)


def _within_window(evidence: Evidence) -> Evidence:
    """Return the evidence with the polls of machines and peers that are within the window."""
    span_s = evidence.window_s
    return replace(
        evidence,
        machines=tuple(
            replace(machine, polls=newest_polls(machine.polls, span_s)) for machine in evidence.machines
        ),
        peers=tuple(replace(peer, polls=newest_polls(peer.polls, span_s)) for peer in evidence.peers),
    )


def _unknown_if_unwatched(evidence: Evidence, limit: Limit) -> Limit:
    """Return `limit`, or unknown if a machine that is not watched could look the same."""
    if limit.kind not in _SLOWED or sees_clock(evidence):
        return limit
    other = "or a low clock (watch its machine)"
    if evidence.spans > 1:
        other = "a low clock or a full link (watch its machines)"
    return _unknown_limit(f"{limit.kind.value}, {other}: {limit.reason}")


def _limit_outside(evidence: Evidence, load: ServerLoad) -> Limit | None:
    """Return the limit outside the engine; None if there is none."""
    if load.idle >= IDLE_SHARE:
        return split_limit(evidence) or _unknown_while_unbalanced(evidence)
    limit = power_limit(evidence) or slow_link_limit(evidence) or split_limit(evidence) or cpu_limit(evidence)
    return limit or busy_link_limit(evidence)


def _unknown_while_unbalanced(evidence: Evidence) -> Limit | None:
    """Return an unknown limit while it is not known yet how evenly the server's group is loaded.

    A server that is empty part of the time may be one that others leave without its share.
    """
    split = evidence.split
    if split is None or split.in_sweep:
        return None  # a sweep chose what each server has
    if split.word is not BalanceWord.UNKNOWN or split.window_s >= split.needed_s:
        return None
    return Limit(LimitKind.UNKNOWN, f"{split.group}'s balance is not judged yet")


def _limit_inside(evidence: Evidence, load: ServerLoad) -> Limit:
    """Return the limit that the engine's queue shows, or else the limit of its steps or its client."""
    queued = 0.0 if load.is_passing and _has_room(evidence, load) else load.queued
    cost = None if evidence.counts_at_end else step_cost(evidence.polls, speculates=evidence.speculates)
    if queued >= _QUEUED:
        return _limit_of_queue(evidence, load, cost)
    seldom = queued < _SELDOM_QUEUED
    if seldom and (limit := long_prefill_limit(load) or client_limit(load, evidence)):
        return limit
    newest = evidence.polls[-1]
    if newest.waiting and (load.idle >= IDLE_SHARE or not newest.running):
        # What limited earlier steps does not explain why none is made.
        share = f"no request ran in {100 * load.idle:.0f} % of the time" if newest.running else "none runs"
        return _unknown_limit(f"{newest.waiting:.0f} wait now, and {share}")
    if seldom:
        limit = prefill_limit(load, cost) or held_back_limit(evidence, load)
        return limit or step_limit(evidence, load, cost)
    limit = (kv_limit(evidence, load) if load.preempted else None) or prefill_limit(load, cost)
    return limit or _unknown_limit(f"requests waited now and then ({100 * queued:.0f} % of the time)")


def _has_room(evidence: Evidence, load: ServerLoad) -> bool:
    """Return whether neither slots nor the KV cache can be what makes requests wait."""
    return not load.preempted and slots_limit(evidence, load) is None and not kv_is_tight(evidence, load)


def _limit_of_queue(evidence: Evidence, load: ServerLoad, cost: StepFit | None) -> Limit:
    """Return why requests wait."""
    if load.deferred > _QUEUED:
        share = f"{100 * load.deferred:.0f} % of {load.waiting:.0f} waiting requests"
        return _unknown_limit(f"{share} wait for other than room: a KV transfer, grammar or LoRA adapter?")
    compute = None if load.preempted else prefill_limit(load, cost, PROMPTS_ALONE)
    room = pool_limit(evidence, load) or slots_limit(evidence, load) or kv_limit(evidence, load)
    limit = compute or room or prefill_limit(load, cost) or long_prefill_limit(load)
    if limit is not None:
        return limit
    free = "" if load.kv_percent is None else f", the KV cache has {100 - load.kv_percent:.0f} % free"
    slots = "" if evidence.slots is None else f"of {evidence.slots} slots "
    reason = "too few step and token counts to tell why" if cost is None else "no figure tells why"
    counts = f"{load.waiting:.0f} wait while {load.running:.0f} {slots}run on average"
    return _unknown_limit(f"{counts}{free}: {reason}")


# The regression of step times: how a server's time divides into steps, decoded tokens and prompt tokens.
#
# In each interval between two polls during which requests ran, the elapsed time is
#
#     seconds = fixed x steps + per_token x generated tokens + per_prompt x prompt tokens
#
# with three coefficients that are not negative. `fixed` is what a step takes however many requests it
# serves: mostly the time to read the weights, which limits decoding by the memory bandwidth. `per_token` is
# what each further request adds to a step, and `per_prompt` what each prompt token costs.


FEWEST_INTERVALS = 6
"""With fewer intervals there is no regression."""
_SHORTEST_S = 0.5
"""Shorter intervals hold too few steps."""
_LONGEST_S = 10.0
"""Longer intervals have a gap: a poll failed."""
_STEPS_EACH = 8
"""Steps that an interval should have, so that the one that ends just after a poll does not matter."""
_LONGEST_READ_S = 0.45
"""The fixed part of a step is at most this long: a GB10, which has the most memory for its bandwidth of all
machines that serve, reads all of it in 0.45 s (121.6 GiB at 273 GB/s)."""
_MOSTLY_PROMPTS = 20
"""Prompt tokens for each generated one from which on the rest of a long step is attributed to prompts."""
_RIDGE = 1e-6
"""Share added to the diagonal, so that regressors that never vary apart do not divide by zero."""


Interval = Sequence[float]
"""(seconds, steps, generated tokens, prompt tokens) between two polls."""


class StepFit(Struct, frozen=True):
    """The coefficients of the regression, and the shares of the time that they explain."""

    fixed_s: float
    per_token_s: float
    fixed_share: float
    """Share of the elapsed time in the fixed part of steps, 0 to 1."""
    token_share: float
    prompt_share: float
    step_s: float
    """Mean seconds of a step, prompts included."""
    batch: float
    """Mean number of tokens that a step generated."""
    batch_spread: float
    """Standard deviation of the batch over intervals / its mean; without spread, `fixed_share` and
    `token_share` cannot be separated."""
    unexplained: float
    """Root mean square of the residuals / mean seconds of an interval."""
    flatness_error: float = 0.0
    """Two standard errors of `flatness`; infinite where the intervals do not tell."""

    @property
    def decode_share(self) -> float:
        """Share of the elapsed time that is not prompts, 0 to 1."""
        return self.fixed_share + self.token_share

    @property
    def flatness(self) -> float | None:
        """Share of a decode step that does not depend on the batch, 0 to 1; None without decoding."""
        return self.fixed_share / self.decode_share if self.decode_share > 0 else None

    @property
    def sure_flatness(self) -> float | None:
        """`flatness` where batches varied enough that it is surely flat, steep or between; else None."""
        flat, error = self.flatness, self.flatness_error
        if flat is None or self.batch_spread < _ENOUGH_SPREAD:
            return None
        # The range of each end: 0 steep, 1 between, 2 flat.
        ranges = {bisect_left((_STEEP, _FLAT), end) for end in (flat - error, flat + error)}
        return flat if len(ranges) == 1 else None


def step_cost(polls: Sequence[Poll], *, speculates: bool = False) -> StepFit | None:
    """Return the regression over the polls of a server; None if steps or tokens are not reported.

    Intervals in which the server had no request at either end are left out. If steps are not counted, they
    are computed from the tokens, since each running request generates one token in a step; not for a server
    that `speculates`.
    """
    rows = [_interval_between(*pair, speculates=speculates) for pair in pairwise(polls)]
    merged = _join_intervals(rows)
    return _fit_step_cost(merged) if len(merged) >= FEWEST_INTERVALS else None


def _join_intervals(rows: Sequence[Interval | None]) -> list[Interval]:
    """Join consecutive intervals until each has `_STEPS_EACH` steps on average.

    A step that ends just after a poll counts in the next interval, which matters less in longer ones.
    """
    intervals = [row for row in rows if row is not None]
    seconds, steps = sum(row[0] for row in intervals), sum(row[1] for row in intervals)
    if not steps:
        return []
    least_s = min(seconds / FEWEST_INTERVALS, _STEPS_EACH * seconds / steps)
    merged: list[Interval] = []
    open_row: Interval | None = None
    for row in rows:
        if row is None:
            open_row = None
            continue
        open_row = row if open_row is None else [*map(add, open_row, row)]
        if open_row[0] >= 0.95 * least_s:  # not one more where polls only come a little early
            merged.append(open_row)
            open_row = None
    return merged


def _interval_between(before: Poll, after: Poll, *, speculates: bool) -> Interval | None:
    """Return the interval between two polls; None if it is no use for the regression."""
    span_s = after.at - before.at
    if not _SHORTEST_S <= span_s <= _LONGEST_S or not before.running or not after.running:
        return None
    generated, prompted = growth(before.generated, after.generated), growth(before.prompted, after.prompted)
    steps = growth(before.steps, after.steps)
    if generated is None or prompted is None:
        return None
    if steps is None:
        if speculates:
            return None
        steps = 2 * generated / (before.running + after.running)
    return span_s, steps, generated, prompted


def _fit_step_cost(rows: Sequence[Interval]) -> StepFit | None:
    """Return the regression over these intervals; None without steps, or if no coefficients fit."""
    seconds, steps, generated, prompted = (sum(column) for column in zip(*rows, strict=True))
    if steps <= 0:
        return None
    columns = list(zip(*rows, strict=True))
    products = [[sum(map(mul, column, other)) for other in columns] for column in columns]
    coefficients = _least_squares(products)
    if coefficients is None:
        return None
    errors_s = [row[0] - sum(map(mul, coefficients, row[1:])) for row in rows]
    residual = sum(error_s**2 for error_s in errors_s)
    fixed, token, prompt = coefficients
    variance = residual / max(1, len(rows) - len(coefficients))
    error = _flatness_error(products, variance, (steps, fixed), (generated, token))
    step_s = seconds / steps
    if fixed > _LONGEST_READ_S and prompted > _MOSTLY_PROMPTS * generated:
        # Few steps end between two polls: what cannot be reading is attributed to prompts.
        fixed, prompt = _LONGEST_READ_S, (step_s - _LONGEST_READ_S) * steps / prompted
    totals = (fixed * steps, token * generated, prompt * prompted)
    scale = max(seconds, sum(totals))
    batches = [row[2] / row[1] for row in rows if row[1] > 0]
    return StepFit(
        fixed_s=fixed,
        per_token_s=token,
        fixed_share=totals[0] / scale,
        token_share=totals[1] / scale,
        prompt_share=totals[2] / scale,
        step_s=step_s,
        batch=generated / steps,
        batch_spread=_spread(batches),
        unexplained=math.sqrt(residual / len(rows)) * len(rows) / seconds,
        flatness_error=error,
    )


def _flatness_error(
    products: Sequence[Sequence[float]], variance: float, steps: Sequence[float], tokens: Sequence[float]
) -> float:
    """Return two standard errors of a decode step's fixed share by the delta method; infinite if unknown.

    `steps` and `tokens` are each a total with its coefficient; `variance` is that of a residual, in s².
    """
    fixed_s, growing_s = mul(*steps), mul(*tokens)
    if not fixed_s + growing_s or not tokens[0]:
        return math.inf
    # 2 √(variance × gᵀ (XᵀX)⁻¹ g), where g is the gradient of the fixed share by the coefficients.
    squared_sum = (fixed_s + growing_s) ** 2
    gradient = (0.0, steps[0] * growing_s / squared_sum, -tokens[0] * fixed_s / squared_sum, 0.0)
    columns = [index for index in (1, 2, 3) if products[index][index] > 0]
    # `_solve` takes its right side from the first column: with the gradient there it returns (XᵀX)⁻¹ g.
    solved = _solve([[slope, *row[1:]] for slope, row in zip(gradient, products, strict=True)], columns)
    if solved is None:
        return math.inf
    total = sum(gradient[index] * value for index, value in zip(columns, solved, strict=True))
    return 2.0 * math.sqrt(max(0.0, variance * total))


def _spread(values: Sequence[float]) -> float:
    """Return the standard deviation as a share of the mean."""
    mean = sum(values) / len(values)
    if mean <= 0:
        return 0.0
    return math.sqrt(sum((value - mean) ** 2 for value in values) / len(values)) / mean


def _least_squares(products: Sequence[Sequence[float]]) -> tuple[float, float, float] | None:
    """Return the three coefficients, none negative, with the smallest sum of squares; None if there are none.

    `products` are those of each column of the intervals with each. With three regressors every subset can be
    tried: the best one whose coefficients are not negative is the exact solution.
    """
    best: tuple[float, tuple[float, float, float]] | None = None
    for size in (3, 2, 1):
        for chosen in combinations((1, 2, 3), size):
            if any(products[index][index] <= 0 for index in chosen):
                continue
            coefficients = _solve(products, chosen)
            if coefficients is None or min(coefficients) < 0:
                continue
            gain = sum(value * products[index][0] for index, value in zip(chosen, coefficients, strict=True))
            values = dict(zip(chosen, coefficients, strict=True))
            if best is None or gain > best[0]:
                best = gain, (values.get(1, 0.0), values.get(2, 0.0), values.get(3, 0.0))
    return None if best is None else best[1]


def _solve(products: Sequence[Sequence[float]], chosen: Sequence[int]) -> list[float] | None:
    """Solve the normal equations of the regressors `chosen` by Gaussian elimination; None if singular."""
    scale = [math.sqrt(products[index][index]) for index in chosen]
    size = len(chosen)
    matrix = [
        [products[a][b] / scale[i] / scale[j] + (_RIDGE if i == j else 0.0) for j, b in enumerate(chosen)]
        + [products[a][0] / scale[i]]
        for i, a in enumerate(chosen)
    ]
    for column in range(size):
        pivot = matrix[column][column]
        if pivot < _RIDGE / 2:
            return None
        for below in range(column + 1, size):
            factor = matrix[below][column] / pivot
            for at in range(column, size + 1):
                matrix[below][at] -= factor * matrix[column][at]
    result = [0.0] * size
    for row in reversed(range(size)):
        solved = sum(matrix[row][at] * result[at] for at in range(row + 1, size))
        result[row] = (matrix[row][size] - solved) / matrix[row][row]
    return [value / scale[at] for at, value in enumerate(result)]
