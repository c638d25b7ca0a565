"""Requests that arrive at a simulated server: seeded, in slow swings, the same each time."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

_BLOCK_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it arrives."""

    at_s: float
    """Model time of its arrival."""
    prompt_tokens: int
    cached_tokens: int
    """The part of the prompt that the prefix cache holds: whole blocks, never all of it."""
    output_tokens: int
    """Tokens after which it ends, at least 1."""
    reason: str
    """How it ends: stop or length."""


@dataclass(frozen=True, slots=True)
class Swing:
    """A request rate that goes up and down as a sine."""

    mean_per_s: float = 0.85
    depth: float = 0.8
    """0: steady; 1: down to nothing."""
    period_s: float = 90.0
    phase: float = 0.0
    """In turns: 0.5 starts half a period later."""

    def rate_per_s(self, at_s: float) -> float:
        """Give the rate at a model time."""
        turn = at_s / self.period_s + self.phase
        return self.mean_per_s * (1.0 + self.depth * math.sin(2 * math.pi * turn))

    @property
    def peak_per_s(self) -> float:
        """The highest rate there is."""
        return self.mean_per_s * (1.0 + self.depth)


class Arrivals:
    """An endless stream of requests: a Poisson process whose rate follows a `Swing` (by thinning)."""

    def __init__(self, swing: Swing, seed: str) -> None:
        """Start at model time 0; the same seed gives the same requests."""
        self._swing = swing
        # Arrivals for graphs with life, no secrets.
        self._random = random.Random(seed)  # noqa: S311
        self._clock_s = 0.0
        self._next = self._draw()

    @property
    def next_at_s(self) -> float:
        """When the next request arrives."""
        return self._next.at_s

    def take(self, until_s: float) -> list[Request]:
        """Give the requests that have arrived up to a model time, oldest first, each only once."""
        taken: list[Request] = []
        while self._next.at_s <= until_s:
            taken.append(self._next)
            self._next = self._draw()
        return taken

    def _draw(self) -> Request:
        peak = self._swing.peak_per_s
        while True:
            self._clock_s += self._random.expovariate(peak)
            if self._random.random() * peak <= self._swing.rate_per_s(self._clock_s):
                break
        # Chat-like sizes: a median prompt of 350 tokens with a long tail, answers of some 150.
        prompt = min(2400, max(24, round(self._random.lognormvariate(math.log(350), 0.7))))
        cached = 0
        if self._random.random() < 0.4:  # noqa: PLR2004 - the share of requests that continue a conversation
            cached = int(prompt * self._random.uniform(0.3, 0.9)) // _BLOCK_TOKENS * _BLOCK_TOKENS
        output = min(400, max(8, round(self._random.lognormvariate(math.log(150), 0.5))))
        reason = "length" if output == 400 or self._random.random() < 0.2 else "stop"  # noqa: PLR2004 - as above
        return Request(self._clock_s, prompt, cached, output, reason)
