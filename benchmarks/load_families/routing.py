"""Routers, which choose a backend for each request."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Sequence

from load_families.engine import Backend, Clock, Request

Choose = Callable[[Request, Sequence[int]], int]
"""Function that returns the index of one of the allowed backends."""
RETRY_S = 0.7
"""Seconds until a refused request is sent again."""


class Gateway:
    """A proxy in front of backends: counts requests in flight, and skips backends that are not allowed."""

    def __init__(self, clock: Clock, backends: Sequence[Backend], *, cooldown_s: float = 0.0) -> None:
        """Start with all backends allowed; set `choose` before the first request."""
        self.clock, self.backends = clock, backends
        self.choose: Choose = lambda _request, allowed: allowed[0]
        self.in_flight = [0] * len(backends)
        self.past: deque[tuple[float, tuple[int, ...]]] = deque([(0.0, (0,) * len(backends))])
        """(time, requests in flight per backend) after each change, for late counts."""
        self.past_s = 0.0
        """Seconds of `past` that are needed."""
        self.withheld: set[int] = set()
        """Backends that the operator drains."""
        self.cooldown_s = cooldown_s
        self.failures: Counter[int] = Counter()
        self.cooldowns = self.refusals = 0
        self._cold_until = [0.0] * len(backends)

    def send(self, request: Request) -> None:
        """Pass a request on to a backend; try again later if none is allowed."""
        now = self.clock.now_s
        allowed = [
            index
            for index, backend in enumerate(self.backends)
            if backend.up and index not in self.withheld and self._cold_until[index] <= now
        ]
        if not allowed:
            self.refusals += 1
            self.clock.after(RETRY_S, lambda: self.send(request))
            return
        index = self.choose(request, allowed)
        then = request.ended

        def ended(done: Request) -> None:
            self._count(index, -1)
            if done.fails:
                self.failures[index] += 1
                if self.cooldown_s:
                    self.cooldowns += 1
                    self._cold_until[index] = self.clock.now_s + self.cooldown_s
            then(done)

        request.ended = ended
        self._count(index, 1)
        self.backends[index].send(request)

    def _count(self, index: int, by: int) -> None:
        self.in_flight[index] += by
        if self.past_s:
            self.past.append((self.clock.now_s, tuple(self.in_flight)))


def shuffle(dice: random.Random, weights: Sequence[float] | None = None) -> Choose:
    """Return random routing, with probabilities by weight if there are weights."""

    def choose(_request: Request, allowed: Sequence[int]) -> int:
        if weights is None:
            return dice.choice(allowed)
        return dice.choices(allowed, [weights[index] for index in allowed])[0]

    return choose


def round_robin(weights: Sequence[int] | None = None) -> Choose:
    """Return round-robin routing; with weights, smooth weighted round-robin as in nginx."""
    credit: Counter[int] = Counter()

    def choose(_request: Request, allowed: Sequence[int]) -> int:
        for index in allowed:
            credit[index] += 1 if weights is None else weights[index]
        best = max(allowed, key=lambda index: (credit[index], -index))
        credit[best] -= len(allowed) if weights is None else sum(weights[index] for index in allowed)
        return best

    return choose


def least_busy(counts: Callable[[], Sequence[int]], dice: random.Random | None = None) -> Choose:
    """Return routing to the lowest count; among equal ones to the first, or with `dice` to a random one."""

    def choose(_request: Request, allowed: Sequence[int]) -> int:
        known = counts()
        least = min(known[index] for index in allowed)
        best = [index for index in allowed if known[index] == least]
        return dice.choice(best) if dice else best[0]

    return choose


def late_counts(gateway: Gateway, late_s: float) -> Callable[[], Sequence[int]]:
    """Return a function that returns the requests in flight `late_s` seconds ago, per backend."""
    gateway.past_s = late_s

    def counts() -> Sequence[int]:
        past = gateway.past
        while len(past) > 1 and past[1][0] <= gateway.clock.now_s - late_s:
            past.popleft()
        return past[0][1]

    return counts


def polled_counts(gateway: Gateway, every_s: float) -> Callable[[], Sequence[int]]:
    """Return a function that returns the backends' loads at the last poll; polls are every `every_s`."""
    known = [0] * len(gateway.backends)

    def poll() -> None:
        known[:] = [backend.load for backend in gateway.backends]
        gateway.clock.after(every_s, poll)

    gateway.clock.after(0.0, poll)
    return lambda: known


def sticky(first: Choose) -> Choose:
    """Return routing by session: `first` routes a session's first request, the others follow it."""
    homes: dict[int, int] = {}

    def choose(request: Request, allowed: Sequence[int]) -> int:
        home = homes.get(request.session)
        if home is None or home not in allowed:
            home = homes[request.session] = first(request, allowed)
        return home

    return choose


def prefix_aware(gateway: Gateway, dice: random.Random, most_ahead: int) -> Choose:
    """Return routing to a cached prefix, unless its backend is over `most_ahead` above the least load."""
    homes: dict[int, set[int]] = {}

    def choose(request: Request, allowed: Sequence[int]) -> int:
        loads = gateway.in_flight
        least = min(loads[index] for index in allowed)
        there = [index for index in homes.setdefault(request.prefix, set()) if index in allowed]
        if there:
            best = min(there, key=lambda index: loads[index])
            if loads[best] - least <= most_ahead:
                return best
        chosen = dice.choice([index for index in allowed if loads[index] == least])
        homes[request.prefix].add(chosen)
        return chosen

    return choose
