"""Consecutive steps of a simulated engine with an unchanged batch; all times are computed by a formula."""

from __future__ import annotations

import math

from msgspec import Struct, field

from sparktop.simulation.request import Sequence


class Stretch(Struct, eq=False):
    """Consecutive steps with the same batch: one step that computes prompts, or any number of decode steps.

    Step k (from 1) takes `first_s + (k - 1) x growth_s`, so the time of its end is a polynomial in k. All
    times are computed from the start of the stretch and never accumulated. So they do not depend on how often
    they are computed.
    """

    start_s: float
    first_s: float
    growth_s: float
    steps: int
    rows: int
    """Tokens computed in each step, without padding."""
    padding: int = 0
    """Rows (tokens) computed in addition to `rows`, because the batch is padded to the next captured size."""
    prefilling: list[tuple[Sequence, int]] = field(default_factory=list)
    """Pairs (request, number of tokens) for the requests whose prompt is computed in this step."""
    done: int = 0

    def end_s(self, step: int) -> float:
        """Return the model time at which step `step` (from 1) ends."""
        return self.start_s + step * self.first_s + self.growth_s * (step * (step - 1) / 2)

    def ended_by(self, at: float) -> int:
        """Return how many steps would have ended by the model time `at` if the stretch had no last step."""
        elapsed_s = at - self.start_s
        if elapsed_s <= 0:
            return 0
        if self.growth_s > 0:
            slope = self.first_s - self.growth_s / 2
            root = math.sqrt(slope * slope + 2 * self.growth_s * elapsed_s)
            # Of the root's two forms, the one that does not subtract nearly equal numbers.
            steps = int(2 * elapsed_s / (root + slope) if slope > 0 else (root - slope) / self.growth_s)
        else:
            steps = int(elapsed_s / self.first_s)
        while self.end_s(steps + 1) <= at:
            steps += 1
        while steps and self.end_s(steps) > at:
            steps -= 1
        return steps

    def cut(self, at: float) -> None:
        """Shorten the stretch so that it ends with the step that runs at the model time `at`."""
        if self.end_s(self.steps) > at:
            self.steps = min(self.steps, max(self.done, self.ended_by(at)) + 1)
