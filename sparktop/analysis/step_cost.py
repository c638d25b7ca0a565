"""How a server's time divides into steps, decoded tokens and prompt tokens: a regression over its polls."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, pairwise
from operator import add, mul

from msgspec import Struct

from sparktop.analysis.evidence import Look, growth

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


class Interval(tuple[float, float, float, float]):
    """(seconds, steps, generated tokens, prompt tokens) between two polls."""

    __slots__ = ()


class StepCost(Struct, frozen=True):
    """The coefficients of the regression, and the shares of the time that they explain."""

    fixed_s: float
    per_token_s: float
    per_prompt_s: float
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

    @property
    def decode_share(self) -> float:
        """Share of the elapsed time that is not prompts, 0 to 1."""
        return self.fixed_share + self.token_share

    @property
    def flatness(self) -> float | None:
        """Share of a decode step that does not depend on the batch, 0 to 1; None without decoding."""
        return self.fixed_share / self.decode_share if self.decode_share > 0 else None


def step_cost(looks: Sequence[Look], *, speculates: bool = False) -> StepCost | None:
    """Return the regression over the polls of a server; None if steps or tokens are not reported.

    Intervals in which the server had no request at either end are left out. If steps are not counted, they
    are computed from the tokens, since each running request generates one token in a step; not for a server
    that `speculates`.
    """
    rows = [_interval_between(*pair, speculates=speculates) for pair in pairwise(looks)]
    merged = _join_intervals(rows)
    return _fit_step_cost(merged) if len(merged) >= FEWEST_INTERVALS else None


def _join_intervals(rows: Sequence[Interval | None]) -> list[Interval]:
    """Join consecutive intervals until each has `_STEPS_EACH` steps on average.

    A step that ends just after a poll counts in the next interval, which matters less in longer ones.
    """
    known = [row for row in rows if row is not None]
    seconds, steps = sum(row[0] for row in known), sum(row[1] for row in known)
    if not steps:
        return []
    least_s = min(seconds / FEWEST_INTERVALS, _STEPS_EACH * seconds / steps)
    merged: list[Interval] = []
    open_row: Interval | None = None
    for row in rows:
        if row is None:
            open_row = None
            continue
        open_row = row if open_row is None else Interval(map(add, open_row, row))
        if open_row[0] >= 0.95 * least_s:
            merged.append(open_row)
            open_row = None
    return merged


def _interval_between(before: Look, after: Look, *, speculates: bool) -> Interval | None:
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
    return Interval((span_s, steps, generated, prompted))


def _fit_step_cost(rows: Sequence[Interval]) -> StepCost | None:
    spans, steps, generated, prompted = (sum(column) for column in zip(*rows, strict=True))
    if steps <= 0:
        return None
    coefficients = _least_squares(rows)
    if coefficients is None:
        return None
    residual = sum(
        (row[0] - sum(a * b for a, b in zip(coefficients, row[1:], strict=True))) ** 2 for row in rows
    )
    fixed, token, prompt = coefficients
    step_s = spans / steps
    if fixed > _LONGEST_READ_S and prompted > _MOSTLY_PROMPTS * generated:
        # Few steps end between two polls: what cannot be reading is attributed to prompts.
        fixed, prompt = _LONGEST_READ_S, (step_s - _LONGEST_READ_S) * steps / prompted
    totals = (fixed * steps, token * generated, prompt * prompted)
    scale = max(spans, sum(totals))
    batches = [row[2] / row[1] for row in rows if row[1] > 0]
    return StepCost(
        fixed,
        token,
        prompt,
        totals[0] / scale,
        totals[1] / scale,
        totals[2] / scale,
        step_s=step_s,
        batch=generated / steps,
        batch_spread=_spread(batches),
        unexplained=math.sqrt(residual / len(rows)) * len(rows) / spans,
    )


def _spread(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    if mean <= 0:
        return 0.0
    return math.sqrt(sum((value - mean) ** 2 for value in values) / len(values)) / mean


def _least_squares(rows: Sequence[Interval]) -> tuple[float, float, float] | None:
    """Return the three coefficients, none negative, with the smallest sum of squares; None if there are none.

    With three regressors every subset can be tried: the best one whose coefficients are not negative is the
    exact solution.
    """
    columns = list(zip(*rows, strict=True))
    products = [[sum(map(mul, column, other)) for other in columns] for column in columns]
    best: tuple[float, tuple[float, float, float]] | None = None
    for size in (3, 2, 1):
        for chosen in combinations((1, 2, 3), size):
            if any(products[one][one] <= 0 for one in chosen):
                continue
            found = _solve(products, chosen)
            if found is None or min(found) < 0:
                continue
            gain = sum(value * products[one][0] for one, value in zip(chosen, found, strict=True))
            values = dict(zip(chosen, found, strict=True))
            if best is None or gain > best[0]:
                best = gain, (values.get(1, 0.0), values.get(2, 0.0), values.get(3, 0.0))
    return None if best is None else best[1]


def _solve(products: Sequence[Sequence[float]], chosen: Sequence[int]) -> list[float] | None:
    """Solve the normal equations of the regressors `chosen` by Gaussian elimination; None if singular."""
    scale = [math.sqrt(products[one][one]) for one in chosen]
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
        known = sum(matrix[row][at] * result[at] for at in range(row + 1, size))
        result[row] = (matrix[row][size] - known) / matrix[row][row]
    return [value / scale[at] for at, value in enumerate(result)]
