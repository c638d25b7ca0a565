"""Random requests of simulated users in virtual time, at a rate that rises and falls slowly.

Equal seeds give equal requests.
"""

from __future__ import annotations

import math
import random
from collections import deque

from msgspec import Struct

from sparktop.model.load import EndReason
from sparktop.simulation.engine import SimulatedRequest

_BLOCK_TOKENS = 16
_CONTINUED = 0.4
"""Share of the requests whose prompt begins like an earlier request's."""
_LIMITED = 0.2
"""Share of the requests that end at their token limit."""
_REMEMBERED = 12
_LONGEST_ANSWER = 400


class Swing(Struct, frozen=True):
    """A rate of requests per second that follows a sine over virtual time."""

    mean_per_s: float = 0.85
    depth: float = 0.8
    """Relative amplitude: 0 is a constant rate, 1 lets the rate fall to zero."""
    period_s: float = 90.0
    phase: float = 0.0
    """Shift of the sine as a fraction of its period: with 0.5 it begins in the middle of a period."""

    def rate_per_s(self, at_s: float) -> float:
        """Return the request rate (requests per second) at the virtual time `at_s` in seconds."""
        turn = at_s / self.period_s + self.phase
        return self.mean_per_s * (1.0 + self.depth * math.sin(2 * math.pi * turn))

    @property
    def peak_per_s(self) -> float:
        """The highest rate in requests per second."""
        return self.mean_per_s * (1.0 + self.depth)


class Arrivals:
    """An endless random stream of requests: a Poisson process whose rate follows a `Swing`."""

    def __init__(self, swing: Swing, seed: str, *, start_s: float = 0.0) -> None:
        """Start at the virtual time `start_s`; equal seeds produce equal requests."""
        self._swing = swing
        self._seed = seed
        # Arrivals need no cryptographic randomness.
        self._random = random.Random(seed)  # noqa: S311
        self._clock_s = start_s
        self._made = 0
        self._prefixes: deque[tuple[int, ...]] = deque(maxlen=_REMEMBERED)
        """Block hashes of recent requests, which later ones may continue."""

    def draw(self) -> tuple[float, SimulatedRequest]:
        """Draw the next request; return (its arrival time in virtual seconds, the request)."""
        peak = self._swing.peak_per_s
        while True:
            self._clock_s += self._random.expovariate(peak)
            if self._random.random() * peak <= self._swing.rate_per_s(self._clock_s):
                return self._clock_s, self._request()

    def _request(self) -> SimulatedRequest:
        """Draw a request with lengths as in a chat: medians of 350 prompt tokens and 150 answer tokens."""
        dice = self._random
        prompt = min(2400, max(24, round(dice.lognormvariate(math.log(350), 0.7))))
        output = min(_LONGEST_ANSWER, max(8, round(dice.lognormvariate(math.log(150), 0.5))))
        limited = output == _LONGEST_ANSWER or dice.random() < _LIMITED
        self._made += 1
        return SimulatedRequest(
            f"{self._seed}-{self._made}",
            prompt,
            output,
            EndReason.LENGTH if limited else EndReason.STOP,
            self._hashes(prompt // _BLOCK_TOKENS),
        )

    def _hashes(self, blocks: int) -> tuple[int, ...]:
        """Return the hashes of the `blocks` blocks of a prompt.

        Some prompts, chosen at random, begin with the blocks of an earlier prompt.
        """
        dice = self._random
        shared: tuple[int, ...] = ()
        if self._prefixes and dice.random() < _CONTINUED:
            earlier = self._prefixes[dice.randrange(len(self._prefixes))]
            shared = earlier[: int(blocks * dice.uniform(0.3, 0.9))]
        hashes = (*shared, *(dice.getrandbits(60) for _ in range(blocks - len(shared))))
        self._prefixes.append(hashes)
        return hashes
