"""Clients: closed loops, bursts, owners that take turns, sessions, and two-stage requests."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from load_families.engine import Clock, Request

Send = Callable[[Request], None]
TURNAROUND_S = 0.008
"""Mean time from an answer's end to the next request's arrival, without thinking."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Lengths of prompts and answers in tokens."""

    kind: str
    """fixed, uniform (half to one and a half of the mean) or log-normal."""
    output: int
    prompt: int = 128

    def draw(self, dice: random.Random) -> int:
        """Draw the length of an answer in tokens, at least 2."""
        if self.kind == "uniform":
            return max(2, round(self.output * dice.uniform(0.5, 1.5)))
        if self.kind == "log-normal":
            return max(2, round(self.output * min(8.0, dice.lognormvariate(-0.32, 0.8))))
        return self.output


@dataclass(slots=True)
class Crowd:
    """Clients that all send to the same destination."""

    clock: Clock
    send: Send
    dice: random.Random
    lengths: Lengths

    def request(self, ended: Callable[[Request], None], session: int = 0, prefix: int = 0) -> Request:
        """Return a new request with a random answer length."""
        return Request(self.lengths.prompt, self.lengths.draw(self.dice), ended, session, prefix)

    def closed_loop(
        self,
        clients: int,
        *,
        think_s: float = 0.0,
        spread_s: float = 3.0,
        works: Callable[[], bool] = lambda: True,
        marks: Callable[[int], dict[str, int]] = lambda _client: {},
    ) -> None:
        """Start clients over `spread_s` seconds; each sends again after an answer and a pause.

        The pause is exponential, with the mean `think_s`. A client checks `works()` before it sends, and
        again every 0.2 s while it is false.
        """

        def begin(client: int) -> None:
            if not works():
                self.clock.after(0.2, lambda: begin(client))
                return
            self.send(self.request(lambda _done: again(client), **marks(client)))

        def again(client: int) -> None:
            pause_s = self.dice.expovariate(1 / TURNAROUND_S)
            pause_s += self.dice.expovariate(1 / think_s) if think_s else 0.0
            self.clock.after(pause_s, lambda: begin(client))

        for client in range(clients):
            self.clock.after(self.dice.uniform(0.0, spread_s), lambda client=client: begin(client))  # type: ignore[misc]  # bound now

    def bursts(self, clients: int, gap_s: float) -> None:
        """Send `clients` requests at once, wait for the last answer and about `gap_s` seconds, and repeat."""
        left = 0

        def burst() -> None:
            nonlocal left
            left = clients
            for _ in range(clients):
                self.clock.after(self.dice.expovariate(1 / TURNAROUND_S), one)

        def one() -> None:
            self.send(self.request(ended))

        def ended(_done: Request) -> None:
            nonlocal left
            left -= 1
            if not left:
                self.clock.after(gap_s * self.dice.uniform(0.5, 1.5), burst)

        self.clock.after(0.5, burst)

    def poisson(self, rate_per_s: float, marks: Callable[[], dict[str, int]] = dict) -> None:
        """Send requests at random times (a Poisson process), whether or not earlier ones have ended."""

        def arrive() -> None:
            self.send(self.request(lambda _done: None, **marks()))
            self.clock.after(self.dice.expovariate(rate_per_s), arrive)

        self.clock.after(self.dice.expovariate(rate_per_s), arrive)


def turns(clock: Clock, on_s: float, off_s: float, phase_s: float) -> Callable[[], bool]:
    """Return a function that is true while an owner works: `on_s` of every `on_s + off_s`, from `phase_s`."""
    return lambda: (clock.now_s - phase_s) % (on_s + off_s) < on_s


def two_stages(prefill: Send, decode: Send) -> Send:
    """Return a `Send` that prefills at one worker (one token) and generates the rest at another."""

    def send(request: Request) -> None:
        then, output = request.ended, request.output

        def decode_it(done: Request) -> None:
            done.prompt, done.output, done.ended = 0, max(1, output - 1), then
            decode(done)

        request.output, request.ended = 1, decode_it
        prefill(request)

    return send


def zipf(count: int, dice: random.Random) -> int:
    """Draw a number below `count`, with a probability proportional to 1 / (number + 1)."""
    weights: Sequence[float] = [1 / (rank + 1) for rank in range(count)]
    return dice.choices(range(count), weights)[0]
