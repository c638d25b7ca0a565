"""Requests that a router splits unequally on purpose: by known weights, or at a ratio that stays the same."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

PIECES = 8
"""Pieces of a time window whose ratios are compared."""
FEWEST_REQUESTS = 40
MEANT_S = 600.0
"""A ratio that has stayed the same for this long seems to be meant."""
_UNEQUAL_CHANCE = 1e-3
"""Largest probability that an even split has such counts: else they are equal within chance."""
_STEADY_SIGMAS = 2.3
"""Standard deviations by which a steady ratio may vary more than by chance: 1 % of them do."""


def is_steady(pieces: Sequence[Mapping[str, float]]) -> bool:
    """Return whether all backends get requests at one ratio, by the counts of successive pieces of time.

    χ² of homogeneity over the pieces, against chance. Herds, turns and cooldowns change the ratio from piece
    to piece. False with too few requests.
    """
    names = list(pieces[0]) if pieces else []
    totals = {name: sum(piece.get(name, 0.0) for piece in pieces) for name in names}
    whole = sum(totals.values())
    used = [piece for piece in pieces if sum(piece.values()) > 0]
    if len(names) < 2 or whole < FEWEST_REQUESTS or len(used) < PIECES // 2 or min(totals.values()) < 1:  # noqa: PLR2004 - a ratio is of two
        return False
    chi2 = 0.0
    for piece in used:
        here = sum(piece.values())
        for name in names:
            expected = here * totals[name] / whole
            chi2 += (piece.get(name, 0.0) - expected) ** 2 / expected
    freedom = (len(used) - 1) * (len(names) - 1)
    return chi2 <= freedom + _STEADY_SIGMAS * math.sqrt(2 * freedom)


def are_unequal(counts: Mapping[str, float]) -> bool:
    """Return whether the counts of requests by backend differ by more than chance would have it."""
    whole, count = sum(counts.values()), len(counts)
    if count < 2 or whole < FEWEST_REQUESTS:  # noqa: PLR2004 - a ratio is of two
        return False
    fair = whole / count
    chi2 = sum((one - fair) ** 2 for one in counts.values()) / fair
    # Wilson and Hilferty: the cube root of χ² is nearly normal.
    freedom = count - 1
    sigmas = ((chi2 / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / math.sqrt(2 / (9 * freedom))
    return math.erfc(sigmas / math.sqrt(2)) / 2 <= _UNEQUAL_CHANCE


def ratio(parts: Mapping[str, float]) -> str:
    """Return parts as a ratio in their order: "3 : 1"; of more than four, the largest and the smallest."""
    values = list(parts.values())
    least = min(value for value in values if value > 0)
    chosen = values if len(values) <= 4 else [max(values), min(values)]  # noqa: PLR2004 - one line
    said = " : ".join(f"{value / least:.1f}".removesuffix(".0") for value in chosen)
    return said if len(values) == len(chosen) else f"{said} at most"
