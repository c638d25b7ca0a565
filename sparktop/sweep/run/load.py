"""The load of a level as its servers report it: simultaneous requests, batch sizes, and queues."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate

from msgspec import Struct

from sparktop.sweep.run.server_side import Counters, ServerPoint, Span

SAME_MOMENT_S = 0.25
"""Samples of several servers up to this many seconds apart count as simultaneous if hardly any request
started or ended between them."""
MOST_MOVED = 0.05
"""Maximum number of requests that may have started or ended between such samples, as a share of the sum of
their values."""
FULL_PERCENT = 98.0
"""KV cache usage in percent from which on requests wait for memory."""

Of = Callable[[ServerPoint], float | None]


class BackendQueue(Struct, frozen=True):
    """What the samples of one server show about requests of a level that waited in its queue."""

    name: str
    looks: int = 0
    """Number of samples that reported how many requests were waiting."""
    looks_waiting: int = 0
    """Number of samples with at least one waiting request."""
    waiting_max: float | None = None
    running_max: float | None = None
    kv_fullest_percent: float | None = None
    """Maximum KV cache usage (0 to 100) of any of its engine cores (data-parallel ranks) in any sample."""
    slots: int | None = None
    """Maximum requests that the server runs at the same time; None if unknown."""
    saturated: bool = False
    """True if in some sample requests were waiting while at least `slots` requests were running."""
    at_once: int | None = None
    """Maximum requests of the level at this server at the same time; None if no answer named its backend."""


class InFlight:
    """The number of requests in flight at any time, computed from their starts and ends."""

    def __init__(self, requests: Iterable[Span]) -> None:
        """Use the (start, end) of each request, in monotonic seconds."""
        changes = sorted((at, step) for start, end in requests for at, step in ((start, 1), (end, -1)))
        self._times = [at for at, _ in changes]
        self._counts = list(accumulate(step for _, step in changes))

    @property
    def most(self) -> int:
        """The maximum number of requests in flight at the same time; 0 without requests."""
        return max(self._counts, default=0)

    def most_between(self, begin: float, end: float) -> int:
        """Return the maximum number of requests in flight at any time from `begin` to `end`."""
        first, last = bisect_right(self._times, begin), bisect_right(self._times, end)
        return max(self._counts[max(0, first - 1) : last], default=0) if last else 0

    def moved_between(self, begin: float, end: float) -> int:
        """Return how many requests started or ended from `begin` to `end`."""
        return bisect_right(self._times, end) - bisect_left(self._times, begin)


def same_moment(looks: Mapping[str, Sequence[ServerPoint]], of: Of, in_flight: InFlight) -> list[float]:
    """Return the sum of a gauge over all servers, once for each moment at which all of them were sampled.

    `looks` has the samples by server; the function `of` reads the gauge from a sample. Samples of different
    moments are not added, because requests that moved between servers would count twice. A sum is at most the
    number of requests in flight. For a single server, return the gauge of each sample unchanged. Return an
    empty list if a server never reports the gauge.
    """
    known = {name: [one for one in points if of(one) is not None] for name, points in looks.items()}
    if not known or not all(known.values()):
        return []
    if len(known) == 1:
        (points,) = known.values()
        return [value for one in points if (value := of(one)) is not None]
    first, *others = sorted(known.values(), key=len)
    times = [[one.at for one in points] for points in others]
    sums = []
    for look in first:
        group = [look, *(points[_nearest(at, look.at)] for points, at in zip(others, times, strict=True))]
        begin, end = min(one.at for one in group), max(one.at for one in group)
        total = sum(of(one) or 0.0 for one in group)
        if end - begin <= SAME_MOMENT_S and in_flight.moved_between(begin, end) <= MOST_MOVED * total:
            sums.append(min(total, float(in_flight.most_between(begin, end))))
    return sums


def busy_batch(points: Sequence[ServerPoint], grown: Counters | None) -> float | None:
    """Return the mean batch size of a server while it was computing; None if unknown.

    If `grown`, the growth of the server's counters, includes engine steps, the result is exact: a step yields
    one token per request of its batch, plus those added by speculative decoding. Otherwise it is the mean
    number of running requests, over the samples in `points` with at least one running request.
    """
    made = None if grown is None else grown.generation_tokens
    if grown is not None and grown.steps and made:
        # A step that only computes part of a long prompt yields no token, but still has a request in its
        # batch.
        return max(1.0, (made - (grown.spec_accepted_tokens or 0.0)) / grown.steps)
    busy = [one.running for one in points if one.running]
    return sum(busy) / len(busy) if busy else None


def backend_queue(
    name: str, points: Sequence[ServerPoint], slots: int | None, at_once: int | None
) -> BackendQueue:
    """Summarise what the samples `points` of one server show about queued requests.

    `slots` is the maximum number of requests that the server runs at the same time; it is ignored if a sample
    shows more. `at_once` is the maximum number of the level's requests at this server at the same time. For
    both, None means unknown.
    """
    waiting = [one.waiting for one in points if one.waiting is not None]
    running_max = max((one.running for one in points if one.running is not None), default=None)
    if slots is not None and (running_max or 0.0) > slots:
        slots = None  # it ran more, so this number is not its limit
    kv = [one.kv_fullest_percent for one in points if one.kv_fullest_percent is not None]
    return BackendQueue(
        name=name,
        looks=len(waiting),
        looks_waiting=sum(one > 0 for one in waiting),
        waiting_max=max(waiting, default=None),
        running_max=running_max,
        kv_fullest_percent=max(kv, default=None),
        slots=slots,
        saturated=slots is not None
        and any((one.waiting or 0.0) > 0 and (one.running or 0.0) >= slots for one in points),
        at_once=at_once,
    )


def queue_reason(queue: BackendQueue, concurrency: int) -> str | None:
    """Return text about why requests queued at a server: too few slots or a full KV cache.

    In a burst, requests also wait for each other's prefill, on any server. This does not count as a queue if
    all requests were seen running at the same time, or if the slots are known to suffice and the cache is not
    full. Return None if no request queued.
    """
    slots, wanted = queue.slots, concurrency if queue.at_once is None else queue.at_once
    beyond = slots is not None and (queue.saturated or (queue.at_once is not None and wanted > slots))
    if not queue.looks_waiting and (queue.looks or not beyond):
        return None
    full = (queue.kv_fullest_percent or 0.0) >= FULL_PERCENT
    all_ran = queue.running_max is not None and queue.running_max >= wanted
    if (all_ran or slots is not None) and not beyond and not full:
        return None
    seen = (
        "requests waited" if queue.waiting_max is None else f"up to {queue.waiting_max:.0f} requests waited"
    )
    seen += f" ({queue.looks_waiting} of {queue.looks} polls)" if queue.looks else ""
    if beyond and queue.at_once is not None:
        return f"{seen}: {wanted} requests at once exceed its {slots} slots"
    if beyond:
        return f"{seen} while all of its {slots} slots were taken"
    return f"{seen}: its KV cache is full" if full else seen


def _nearest(times: Sequence[float], at: float) -> int:
    index = bisect_left(times, at)
    return min(range(max(0, index - 1), min(len(times), index + 1)), key=lambda one: abs(times[one] - at))
