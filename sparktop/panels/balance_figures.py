"""The questions behind a group's word: each with its figures, their limits, and a plain sentence for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparktop.analysis.balance import SHORTEST_S
from sparktop.analysis.dispersion import fewest_requests
from sparktop.analysis.request_shares import CHANCE_LIMIT, FEWEST_REQUESTS, ODDS_LIMIT
from sparktop.graphics.cells import fit
from sparktop.graphics.numbers import UNKNOWN
from sparktop.model.balance import Balance, BalanceWord, Swing
from sparktop.panels.balance_verdict import short_seconds, wrapped
from sparktop.panels.figures import figure, label
from sparktop.panels.rows import Row, fit_row, row_width

# The rules' own limits; a test holds them to be the same.
PRESENT = 0.9
CHANGES, SPREAD, SPREAD_OF_MANY, SWING, SWING_OF_MANY = 3, 4.0, 3.0, 0.6, 0.5
SCORE_OF_MANY, SCORE_BLIND, TURN, RHYTHM_SWING, RHYTHM_SPREAD, RHYTHM_LOAD = 2.5, 1.5, 0.2, 0.25, 1.0, 3.0
HUNGRY, LOST, HUNGRY_SPREAD = 0.1, 0.05, 2.5
SKEW, STEADY, SKEW_CHANGES = 0.2, 4.0, 1
_PAIR = 2

_NAME, _VALUE, _LIMIT = 17, 8, 9
"""Cells of a row before its sentence, after the mark."""
_BESIDE = 30
"""Cells that a sentence needs to stand beside its figure; else it stands below."""


@dataclass(frozen=True, slots=True)
class Check:
    """One figure: does it keep its limit?"""

    name: str
    value: str
    limit: str
    """"" where there is none."""
    holds: bool | None
    """None where it only informs or is not known."""
    meaning: str


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a group, and what all of its figures answer."""

    title: str
    answer: bool | None
    """None: cannot be told."""
    checks: tuple[Check, ...]

    def rows(self, width: int) -> list[Row]:
        """Give the question with its answer, then a row or more for each figure."""
        word, role = {
            True: ("yes", "title"),
            False: ("no", "muted"),
            None: ("cannot be told yet", "muted"),
        }[self.answer]
        left: Row = [("─ ", "border"), (self.title, "accent"), (" ", "border")]
        right: Row = [(f" {word} ", role), ("─", "border")]
        gap = max(1, width - row_width(left) - row_width(right))
        rows = [fit_row([*left, ("─" * gap, "border"), *right], width)]
        for check in self.checks:
            rows += _check_rows(check, width)
        return rows


def _check_rows(check: Check, width: int) -> list[Row]:
    sign, role = {True: ("✓ ", "good"), False: ("✗ ", "muted"), None: ("  ", "muted")}[check.holds]
    row: Row = [
        (sign, role),
        (fit(check.name, _NAME), "text"),
        figure(check.value.rjust(_VALUE), known=check.value != UNKNOWN),
        label(f" {check.limit}", _LIMIT),
    ]
    indent = row_width(row) + 1
    if width - indent >= _BESIDE:
        lines = wrapped(check.meaning, width - indent)
        return [
            fit_row([*(row if not index else [label(" " * (indent - 1))]), label(f" {line}")], width)
            for index, line in enumerate(lines)
        ]
    return [
        fit_row(row, width),
        *(fit_row([label(f"    {line}")], width) for line in wrapped(check.meaning, width - 4)),
    ]


def questions(balance: Balance) -> list[Question]:
    """Give all questions in the order in which they are asked."""
    said = {balance.word_now, *balance.also}
    judged = balance.word_now is not BalanceWord.UNKNOWN
    lead, rhythm, skewed, requests = _lead(balance), _rhythm(balance), _uneven(balance), _requests(balance)
    swings, uneven = BalanceWord.OSCILLATING in said, BalanceWord.UNEVEN in said
    alternate, unequal = _all_hold(lead), _all_hold(requests)
    # Two ways lead to "oscillating", and two to "uneven": at least one of them has.
    regular = swings and (_all_hold(rhythm) or not alternate)
    ahead = uneven and (_all_hold(skewed) or not unequal)
    answers = (
        ("Is there enough to tell?", judged, _enough(balance)),
        ("Does the lead change again and again?", swings and alternate if judged else None, lead),
        ("Or is there one rhythm?", regular if judged else None, rhythm),
        ("Is one starved?", BalanceWord.STARVED in said if judged else None, _starved(balance)),
        ("Is the same one always ahead?", ahead if judged else None, skewed),
        ("Did one get most of the requests?", None if balance.requests is None else unequal, requests),
    )
    return [Question(*answer) for answer in answers]


def _all_hold(checks: Sequence[Check]) -> bool:
    return all(check.holds for check in checks if check.limit)


def _at_least(value: float | None, limit: float) -> bool | None:
    return None if value is None else value >= limit


def _text(value: float | None, form: str, tail: str = "") -> str:
    return UNKNOWN if value is None else f"{value:{form}}{tail}".replace("-", "−")


def _enough(balance: Balance) -> tuple[Check, ...]:
    count = max(_PAIR, len(balance.backends))
    needed = balance.needed_s or SHORTEST_S
    most = fewest_requests(count)
    present, total = balance.samples_percent, balance.mean_total
    return (
        Check(
            "time looked at",
            f"{balance.window_s:.0f} s",
            f"≥ {needed:.0f} s",
            balance.window_s >= 0.99 * needed - 1,
            "eight lives of a request, 45 s at least: a swing lasts about two",
        ),
        Check(
            "samples there",
            _text(present, ".0f", " %"),
            f"≥ {100 * PRESENT:.0f} %",
            _at_least(present, 100 * PRESENT),
            "of the backend that has fewest; what is missing is never filled in",
        ),
        Check(
            "requests",
            _text(total, ".1f"),
            f"≥ {most}",
            _at_least(total, most),
            "in the group on average; with fewer only a clear rhythm is believed",
        ),
        Check(
            "life of a request",
            UNKNOWN if balance.e2e_s is None else short_seconds(balance.e2e_s),
            "",
            None,
            _lengths(balance.length_variation),
        ),
    )


def _lengths(variation: float | None) -> str:
    if variation is None:
        return "the median; how much the lengths of answers differ is not known"
    return f"the median; the lengths of answers vary by {100 * variation:.0f} %"


def _lead(balance: Balance) -> tuple[Check, ...]:
    pair = len(balance.backends) <= _PAIR
    swing = balance.swing
    spread, least = (SPREAD, SWING) if pair else (SPREAD_OF_MANY, SWING_OF_MANY)
    rms = None if swing is None else swing.relative_rms
    margin = balance.lead_margin
    return (
        Check(
            "lead changes",
            _text(balance.lead_changes, "d"),
            f"≥ {CHANGES}",
            _at_least(balance.lead_changes, CHANGES),
            "how often another backend took the lead in this time",
        ),
        Check(
            "spread Z",
            _text(balance.dispersion_z, ".1f", " ×"),
            f"≥ {spread:g} ×",
            _at_least(balance.dispersion_z, spread),
            "how far apart loads lie, over what random routing does: 1 is chance",
        ),
        Check(
            "swing",
            _text(rms, ".2f"),
            f"≥ {least:g}",
            _at_least(rms, least),
            "mean distance from the share, in shares: 1 is all to nothing and back",
        ),
        Check(
            "lead margin",
            _text(None if margin is None else 100 * margin, ".0f", " %"),
            "",
            None,
            "more than its share that it takes to lead: more than chance gives",
        ),
    )


def _rhythm(balance: Balance) -> tuple[Check, ...]:
    count = max(_PAIR, len(balance.backends))
    swing = balance.swing or Swing("")
    # Where nobody knows how long a request lives, any period would do.
    least = (SCORE_OF_MANY if count > _PAIR else 0.0) + (0.0 if balance.e2e_s else SCORE_BLIND)
    back, half = swing.rebound, swing.opposite
    turned = None if back is None or half is None else back - half
    z, factor = balance.dispersion_z, balance.variance_factor
    moving = None if z is None or factor is None or balance.swing is None else z * factor * swing.moving_share
    rms = None if balance.swing is None else swing.relative_rms
    return (
        Check(
            "score",
            _text(swing.score, "+.1f"),
            f"≥ {least:g}",
            _at_least(swing.score, least),
            "spread, return and cycles weighed: chance gets to 0 once in 5000 windows",
        ),
        Check(
            "turn",
            _text(turned, ".2f"),
            f"≥ {TURN:g}",
            _at_least(turned, TURN),
            f"back after a period ({_text(back, '+.2f')}) less turned round half way ({_text(half, '+.2f')})",
        ),
        Check("swing", _text(rms, ".2f"), f"≥ {RHYTHM_SWING:g}", _at_least(rms, RHYTHM_SWING), "as above"),
        Check(
            "moving spread",
            _text(moving, ".1f"),
            f"≥ {RHYTHM_SPREAD:g}",
            _at_least(moving, RHYTHM_SPREAD),
            "the part that moves, over what coin tosses give",
        ),
        Check(
            "requests",
            _text(balance.mean_total, ".1f"),
            f"≥ {RHYTHM_LOAD * count:g}",
            _at_least(balance.mean_total, RHYTHM_LOAD * count),
            "three a backend: with fewer, three coin tosses look like a swing",
        ),
        *_period(swing),
    )


def _period(swing: Swing) -> tuple[Check, ...]:
    return (
        Check(
            "period",
            UNKNOWN if swing.period_s is None else short_seconds(swing.period_s),
            "",
            None,
            f"{_text(swing.cycles, '.1f')} of them in the window",
        ),
        Check(
            "in that rhythm",
            _text(None if swing.variance_share is None else 100 * swing.variance_share, ".0f", " %"),
            "",
            None,
            f"of the variance; by slow drift alone as much has a chance of {_chance(swing.chance)} at most",
        ),
    )


def _chance(chance: float | None) -> str:
    if chance is None:
        return UNKNOWN
    return "<0.001" if chance < 0.001 else f"{chance:.2g}"


def _starved(balance: Balance) -> tuple[Check, ...]:
    shares = balance.starved_percent
    worst, whole = max(shares.values(), default=None), sum(shares.values())
    # The rule counts the time in which anybody starves: at least the worst one's, at most all together.
    holds = (
        None if worst is None else True if worst >= 100 * HUNGRY else False if whole < 100 * HUNGRY else None
    )
    names = " · ".join(f"{name} {share:.0f} %" for name, share in list(shares.items())[:4])
    more = f" · and {len(shares) - 4} more" if len(shares) > 4 else ""
    lost = balance.lost_percent
    return (
        Check(
            "starved",
            _text(worst, ".0f", " %"),
            f"≥ {100 * HUNGRY:.0f} %",
            holds,
            f"of the time next to nothing to do while another had too much: {names or UNKNOWN}{more}",
        ),
        Check(
            "lost",
            _text(lost, ".0f", " %"),
            f"≥ {100 * LOST:.0f} %",
            _at_least(lost, 100 * LOST),
            "of throughput, against the same requests spread evenly"
            if lost is not None
            else "not known: the batches do not vary enough to tell how long a step takes",
        ),
        Check(
            "spread Z",
            _text(balance.dispersion_z, ".1f", " ×"),
            f"≥ {HUNGRY_SPREAD:g} ×",
            _at_least(balance.dispersion_z, HUNGRY_SPREAD),
            "with less, chance alone leaves one empty now and then",
        ),
    )


def _uneven(balance: Balance) -> tuple[Check, ...]:
    skew = balance.skew
    changes = balance.lead_changes
    return (
        Check(
            "skew",
            _text(None if skew is None else 100 * skew, ".0f", " %"),
            f"≥ {100 * SKEW:.0f} %",
            _at_least(skew, SKEW),
            f"more than its share on average: {balance.skew_backend or UNKNOWN}",
        ),
        Check(
            "steadiness",
            _text(balance.steadiness, ".1f"),
            f"≥ {STEADY:g}",
            _at_least(balance.steadiness, STEADY),
            "that mean over how much it moves: a swing has a low one",
        ),
        Check(
            "lead changes",
            _text(changes, "d"),
            f"≤ {SKEW_CHANGES}",
            None if changes is None else changes <= SKEW_CHANGES,
            "who is always ahead is not overtaken",
        ),
    )


def _requests(balance: Balance) -> tuple[Check, ...]:
    shares, count = balance.requests_share, max(_PAIR, len(balance.backends))
    most = max(shares, key=lambda name: shares[name], default=None)
    share = None if most is None else 100 * shares[most]
    # The share whose odds are so many times those of an even one.
    least = 100 * ODDS_LIMIT / (ODDS_LIMIT + count - 1)
    chance = balance.requests_chance
    failed = [f"{name} {number:.0f}" for name, number in balance.errors.items() if number]
    return (
        Check(
            "requests counted",
            _text(balance.requests, "d"),
            f"≥ {FEWEST_REQUESTS}",
            _at_least(balance.requests, FEWEST_REQUESTS),
            "by the backends themselves, in this time",
        ),
        Check(
            "most",
            _text(share, ".0f", " %"),
            f"≥ {least:.0f} %",
            _at_least(share, least),
            f"of them went to {most or UNKNOWN}",
        ),
        Check(
            "by chance",
            UNKNOWN if chance is None else _chance(chance),
            f"≤ {CHANCE_LIMIT:.0e}".replace("e-0", "e-"),
            None if chance is None else chance <= CHANCE_LIMIT,
            "how likely random routing gives one as many",
        ),
        Check(
            "failed",
            _text(sum(balance.errors.values()) if balance.errors else None, ".0f"),
            "",
            None,
            f"requests: {' · '.join(failed[:4]) or 'none, or nobody counts them'}",
        ),
    )
