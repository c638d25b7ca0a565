"""Draws the evidence for a group's verdict: the checks with their figures, and two plots on a rhythm."""

from __future__ import annotations

from sparktop.analysis.balance import rules
from sparktop.analysis.balance.rules import RHYTHM_TURN, Check
from sparktop.colors.palette import LEVELS
from sparktop.graphics import numbers
from sparktop.graphics.axes import PlotAxis, nice_ceiling, pointed
from sparktop.graphics.braille import mirrored
from sparktop.graphics.cells import fit
from sparktop.graphics.numbers import UNKNOWN
from sparktop.model.balance import Balance, BalanceWord, Swing
from sparktop.panels.balance.graphs import with_line
from sparktop.panels.balance.verdict import short_seconds
from sparktop.panels.parts.figures import label
from sparktop.panels.parts.graph import area_rows
from sparktop.panels.parts.rows import Row, fit_row, row_width, spread_row
from sparktop.panels.parts.sections import heading
from sparktop.panels.parts.sentences import wrapped

_SIGNS = {True: ("✓ ", "good"), False: ("✗ ", "muted"), None: ("  ", "muted")}


def answers(balance: Balance) -> list[tuple[Check, bool | None]]:
    """Return all checks with their answers, always in the same order.

    An answer is that of the check's own figure and conditions; None while the figure is unknown or, except of
    counted requests, while there is no verdict. What is unknown is not enough.
    """
    judged = balance.word_now is not BalanceWord.UNKNOWN
    return [
        (
            check,
            check.holds
            if check.code == "enough" or (check.value is not None and (judged or check.code == "requests"))
            else None,
        )
        for check in rules.checks(balance)
    ]


def answer_rows(balance: Balance, width: int, room: int = 0) -> list[Row]:
    """Return the checks as rows of `width` cells, each with its rule, those that decided first.

    Where `room` has as many rows, an empty row stands between two checks.
    """
    answered = answers(balance)
    if balance.word_now is not BalanceWord.UNKNOWN:
        answered.sort(key=lambda one: (one[0].code == "enough", one[1] is not True))
    blocks = [[*_head(one, width), *_rule(one[0], width)] for one in answered]
    if sum(map(len, blocks)) + len(blocks) <= room:
        blocks = [[*block, fit_row((), width)] for block in blocks]
    return [row for block in blocks for row in block]


def _head(answered: tuple[Check, bool | None], width: int) -> list[Row]:
    """Return a row with the question and the figure that decides on it; two rows where one is too short."""
    check, answer = answered
    left: Row = [_SIGNS[answer], (check.question, "title" if answer else "text")]
    right: Row = [
        label(f"{check.name} "),
        (value_text(check), "text" if check.value is not None else "muted"),
        label(f", {_limit(check)}"),
    ]
    gap = width - row_width(left) - row_width(right)
    if gap < 1:
        indent = max(0, width - row_width(right))
        return [fit_row(left, width), fit_row([label(" " * indent), *right], width)]
    return [[*left, label(" " * gap), *right]]


def _limit(check: Check) -> str:
    """Return the limit as text; of a figure below it, what it means: "needs ≥ 45 s", "yes from 75 %"."""
    limit = limit_text(check)
    if check.within or check.instead:
        return limit
    return f"needs {limit}" if check.code == "enough" else limit.replace("≥", "yes from")


def _rule(check: Check, width: int) -> list[Row]:
    words = [check.rule, *(f"but {one}" for one in (check.but,) if one and check.within)]
    words += [check.instead] if check.instead and not check.within else []
    return [fit_row([label(f"    {line}")], width) for line in wrapped("; ".join(words), width - 4)]


def value_text(check: Check) -> str:
    """Format a check's value with its unit; "–" if it is unknown."""
    if check.value is None:
        return UNKNOWN
    # Added to 0.0, so that a rounded zero is never shown as "-0.00".
    number = f"{0.0 + round(check.value, check.digits):.{check.digits}f}"
    return f"{number} {check.unit}".rstrip().replace("-", "−")


def limit_text(check: Check) -> str:
    """Format a check's limit with "≥" and its unit."""
    number = f"{check.limit:.0f}" if check.unit in {"s", "%"} else f"{check.limit:g}"
    return f"≥ {number} {check.unit}".rstrip()


_EDGE = 6
"""Width in cells of the scale at the left of a plot."""
_TAPER = 1.5
"""Half-width of the frequency band around a rhythm, in units of 1 / window."""


def plots(balance: Balance, width: int, height: int) -> tuple[list[Row], list[Row]]:
    """Return the plots of the load's autocorrelation and spectrum, each as `height` rows of `width` cells."""
    swing = balance.swing
    titles = ("autocorrelation of the load", "variance by period")
    if swing is None or not swing.autocorrelation.values or not swing.spectrum.values:
        nothing = "no movement to look at" if swing is not None else "too few samples yet"
        one, other = ([heading(title, "", width), *_empty(nothing, width, height - 1)] for title in titles)
        return one, other
    word = _period_word(balance, swing)
    return _autocorrelation(swing, word, titles[0], width, height), _spectrum(
        swing, word, balance.window_s, titles[1], width, height
    )


def _heading(title: str, words: str, width: int) -> Row:
    """Return the title row of a plot, with `words` at its right if both fit."""
    return heading(title, words if len(title) + len(words) + 8 <= width else "", width)


def _empty(word: str, width: int, height: int) -> list[Row]:
    rows = [fit_row((), width) for _ in range(height)]
    rows[len(rows) // 2] = [(fit(word, width, "center"), "muted")]
    return rows


def _framed(rows: list[Row], edges: dict[int, str], marks: str, axis: PlotAxis) -> list[Row]:
    """Return a plot with its scale at the left, and below it the line of text `marks` and the axis.

    `edges` maps indexes of rows to their labels on the scale.
    """
    result = [
        [*spread_row([], [(f"{edges.get(index, '')}┤" if index in edges else "│", "muted")], _EDGE), *row]
        for index, row in enumerate(rows)
    ]
    result.append([label(" " * _EDGE), (marks, "title")])
    result.append([*spread_row([], [label("s ")], _EDGE), label(axis.labels())])
    return result


def _period_word(balance: Balance, swing: Swing) -> str:
    """Return the period to write beside its mark; "" where the verdict names another one, by another rule."""
    word = "" if swing.period_s is None else short_seconds(swing.period_s)
    return word if balance.period_s is None or word == short_seconds(balance.period_s) else ""


def _autocorrelation(swing: Swing, period: str, title: str, width: int, height: int) -> list[Row]:
    """Draw the autocorrelation of the load by lag in seconds, on a scale from -1 to 1."""
    curve = swing.autocorrelation
    axis = PlotAxis(0.0, curve.axis[-1], width - _EDGE)
    tall = max(4, height - 3)
    values = axis.columns(curve.axis, curve.values)
    up = [value if value is None or value >= 0 else None for value in values]
    down = [None if value is None or value >= 0 else -value for value in values]
    lines = mirrored(up, down, axis.width, tall, 1.0)
    rows: list[Row] = [[(line, _role("prompt", row, tall))] for row, line in enumerate(lines)]
    words = "lag in s"
    if swing.opposite is not None and -1 < swing.opposite + RHYTHM_TURN < 1:
        level = min(tall - 1, int(tall * (1 - swing.opposite - RHYTHM_TURN) / 2))
        rows[level] = with_line(rows[level])
        words = "must come back above ┄"
    edges = {0: "+1", tall // 2: "0", tall - 1: "−1"}
    marks = ""
    if swing.period_s is not None:
        half, whole = swing.period_s / 2, swing.period_s
        marks = pointed([(whole, f"▲ {period}".rstrip()), (half, "△")], axis)
    return [_heading(title, words, width), *_framed(rows, edges, marks, axis)]


def _role(gradient: str, row: int, height: int) -> str:
    far = abs(2 * row + 1 - height) / max(1, height - 1)
    return f"{gradient}/{round(far * (LEVELS - 1))}"


def _spectrum(swing: Swing, period: str, window_s: float, title: str, width: int, height: int) -> list[Row]:
    """Draw the share of the load's variance at each period, and mark the frequency band of the rhythm."""
    curve = swing.spectrum
    axis = PlotAxis(curve.axis[0], curve.axis[-1], width - _EDGE, ratios=True)
    tall = max(4, height - 3)
    values = axis.columns(curve.axis, curve.values)
    top = nice_ceiling(max((value for value in values if value is not None), default=0.0), 0.01)
    rows = area_rows(values, axis.width, tall, top, "load", end_slot=1)
    edges = {0: f"{numbers.tick(100 * top)} %", tall - 1: "0"}
    return [
        _heading(title, "period in s", width),
        *_framed(rows, edges, _band(swing, period, window_s, axis), axis),
    ]


def _band(swing: Swing, period: str, window_s: float, axis: PlotAxis) -> str:
    """Return the row of text below the spectrum that marks the periods of the rhythm with a line.

    Empty if the loads have no rhythm.
    """
    if swing.period_s is None or not window_s > 0:
        return ""
    middle, half = 1 / swing.period_s, _TAPER / window_s
    first = axis.cell(1 / (middle + half))
    last = axis.cell(1 / (middle - half)) if middle > half else axis.width - 1
    row = list(" " * axis.width)
    row[first : last + 1] = "├" + "─" * max(0, last - first - 1) + ("┤" if last > first else "")
    row[axis.cell(swing.period_s)] = "▲"
    word = f" {period}" if period else ""
    if last + 1 + len(word) <= axis.width:
        row[last + 1 : last + 1 + len(word)] = word
    elif first - len(word) >= 0:
        row[first - len(word) : first] = f"{word.strip()} "
    return "".join(row)
