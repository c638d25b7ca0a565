"""A group's balance: a low panel on the board, its full screen, and the evidence for its verdict."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from msgspec.structs import replace

from sparktop.analysis.balance import rules
from sparktop.analysis.balance.rules import RHYTHM_TURN, RuleCheck
from sparktop.graphics import numbers
from sparktop.graphics.axes import NOW, PlotAxis, labels_from_cells, time_axis
from sparktop.graphics.braille import draw_mirrored, lead_row
from sparktop.graphics.cells import cell_width
from sparktop.model.balance import Balance, BalanceWord, Swing, balances_read_first
from sparktop.model.snapshot import Snapshot
from sparktop.model.text import short_seconds
from sparktop.panels.group.graphs import (
    DOWN,
    GUTTER,
    UP,
    GroupSlots,
    LoadLine,
    balance_axis,
    group_lines,
    group_slots,
    lead_runs,
    line_slots,
    load_slots,
    many_rows,
    opposed_rows,
    pair_rows,
    with_line,
)
from sparktop.panels.group.verdict import (
    reason_rows,
    value_line,
    verdict_line,
    verdict_pieces,
    word_run,
)
from sparktop.panels.parts.figures import flow_pieces, heading, label, label_row, wrap_sentence
from sparktop.panels.parts.graph import (
    TimeWindow,
    caption,
    empty_rows,
    mirror_role,
    scale_words,
    top_words,
)
from sparktop.panels.parts.text import (
    Row,
    Run,
    figures_width,
    fit_row,
    fit_rows,
    fitted_names,
    frame_role,
    frame_rows,
    graph_columns,
    graph_starts,
    key_tab,
    mark,
    merge_runs,
    name_tab,
    panel_row,
    row_width,
    short_names,
    side_by_side,
    spread_row,
    tab,
)

_PAIR = 2
_STRIP_FROM = 76
"""Width in cells of a low panel from which on it has a graph."""
_GRAPHS_FROM = 3
"""Least height in rows of the inside of a panel with two graphs."""
_NAME = 16
"""Most cells for a group's name in a list."""


def balance_band(
    balance: Balance,
    snapshot: Snapshot,
    width: int,
    height: int,
    window: TimeWindow,
    *,
    selected: bool = False,
) -> list[Row]:
    """Draw the balance of one group of backends as `height` rows of `width` cells.

    The graphs show the time `window`, as all graphs of the board do.
    """
    inside, starts = height - 2, graph_starts(width)
    lines = group_lines(balance, snapshot.backends)
    if inside >= _GRAPHS_FROM and len(starts) > 1 and len(lines) >= _PAIR:
        words = _words_rows(balance, snapshot, figures_width(width), inside)
        graphs = _two_graphs(balance, lines, graph_columns(width)[1], inside, window)
        rows = [panel_row(row, [graph[index] for graph in graphs], width) for index, row in enumerate(words)]
    elif len(lines) == _PAIR and width >= _STRIP_FROM:
        first, *rest = _words_rows(balance, snapshot, starts[-1] - 3, inside)
        strip = _lead_strip(lines, graph_columns(width)[1], window)
        rows = [[(" ", "text"), *first, (" ", "text"), *strip]]
        rows += [[(" ", "text"), *row] for row in rest]
    else:
        rows = [[(" ", "text"), *row] for row in _words_rows(balance, snapshot, width - 4, inside)]
    return frame_rows(
        rows,
        width,
        height,
        role=frame_role("balance", selected=selected),
        title=group_tab(balance),
        state=word_run(balance),
        about=members(balance),
        note=key_tab("w", "why?"),
    )


def group_entry(balance: Balance, width: int, *, selected: bool = False) -> Row:
    """Return one group's balance as a line of a list, without the list's frame of `width` cells."""
    row: Row = [mark(selected=selected), (f"{_short_name(balance.group)} ", "title")]
    return fit_row([*row, *verdict_line(balance, width - 2 - _NAME - 2)], width - 2)


def edge_verdict(groups: Sequence[Balance], width: int) -> Row:
    """Return the worst verdict of all groups in `width` cells or fewer, for the backends' frame."""
    if not groups:
        return []
    groups = balances_read_first(groups)
    worst_group = min(groups, key=lambda group: (not group.bad, list(BalanceWord).index(group.word)))
    more: Row = [label(f" +{len(groups) - 1} groups")] if len(groups) > 1 else []
    name: Row = [label(f"{_short_name(worst_group.group).rstrip()}: ")]
    room = width - row_width([*name, *more]) - 2
    return tab(*name, *verdict_line(worst_group, room), *more)


def _short_name(group: str) -> str:
    """Return a group's name in `_NAME` cells; of a model's name without its owner, if too long."""
    short = group if cell_width(group) <= _NAME else group.rpartition("/")[2]
    return fitted_names((short,), _NAME)[short]


def group_tab(balance: Balance, word: str = "") -> Row:
    """Return the group's name as a tab for the frame; `word` replaces the word "balance"."""
    return name_tab("balance", fitted_names((balance.group,), 24)[balance.group].rstrip(), word)


def members(balance: Balance) -> Row:
    """Return a row with the names of the group's two backends, or the number of backends.

    The number is that of engine cores (lanes) if these form the group.
    """
    count = len(balance.backends)
    names = " ⇄ ".join(balance.backends) if count == _PAIR else f"{count} backends"
    if balance.lanes_of is not None:
        names = f"{count} DP ranks"
    return [("─ ", "border"), (f"{names} ", "text")]


def _words_rows(balance: Balance, snapshot: Snapshot, width: int, height: int) -> list[Row]:
    """Return exactly `height` rows of text on a group's balance: verdict, values, and reasons if they fit."""
    if height == 1:
        return [fit_row(value_line(balance, width), width)]
    pieces = verdict_pieces(balance, snapshot.routers)
    if row_width(pieces[0]) > width:
        pieces = verdict_pieces(balance, snapshot.routers, short=True)
    rows = flow_pieces(pieces, width)
    rows += reason_rows(balance, width, height - len(rows))
    return fit_rows(rows, width, height)


def _two_graphs(
    balance: Balance, lines: tuple[LoadLine, ...], width: int, height: int, window: TimeWindow
) -> list[list[Row]]:
    """Return two graphs of `width` cells: the group's token rate, and the loads of its backends."""
    slots = group_slots(balance, lines, window.axis(width), width)
    words: Row = [("Σ tok/s", "generation")]
    even: Row = []
    if slots.even_tps is not None:
        even = label_row(f" ┄{numbers.rate(slots.even_tps, 6).strip()}", " if even")
    top = scale_words(numbers.tick(slots.group_top))
    left = [
        caption([*words, *even], top, width, [*words, *even[:1]], words),
        *slots.tps_rows(width, height - 1),
    ]
    if len(lines) == _PAIR:
        return [left, _pair_graph(balance, slots, width, height)]
    return [left, _many_graph(slots, width, height)]


def _lead_strip(lines: Sequence[LoadLine], width: int, window: TimeWindow) -> Row:
    """Draw one row of dots that shows over time which of two backends has more load, and by how much.

    A dot in the upper half of the row means the first backend, in the lower half the second.
    """
    axis = window.axis(width)
    first, second = (load_slots(*line_slots(line, axis, width)[:2]) for line in lines)
    # The lead of the first as a share of both loads, -1 to 1; None if one is unknown or both are 0.
    ahead = [
        None if a is None or b is None or a + b <= 0 else (a - b) / (a + b)
        for a, b in zip(first, second, strict=True)
    ]
    up = [value if value is not None and value >= 0 else None for value in ahead]
    down = [-value if value is not None and value < 0 else None for value in ahead]
    return [(draw_mirrored(up, down, width, 1, 1.0, end_slot=axis.end_slot)[0], "running")]


def _pair_graph(balance: Balance, slots: GroupSlots, width: int, height: int) -> list[Row]:
    """Draw the load of one backend upwards, and the load of another downwards, from a centre line.

    If `height` leaves a row for the centre line, this row shows which backend leads.
    """
    up, down = zip(slots.running, slots.waiting, strict=True)
    half = (height - 1) // 2
    graph_above, graph_below = opposed_rows(slots, up, down, width, half)
    words, short = (
        [(f"{UP}{above}", "running"), (f" {DOWN}{below}", "running")]
        for above, below in (slots.names, short_names(slots.names))
    )
    title = caption([label("requests "), *words], top_words(slots.load_top), width, words, short)
    rows = [title, *graph_above]
    if (height - 1) % 2:
        first, second = slots.mean_loads(width)
        rows.append(lead_runs(lead_row(first, second, balance.lead_margin)))
    return [*rows, *graph_below]


def _many_graph(shown: GroupSlots, width: int, height: int) -> list[Row]:
    """Draw the highest load of all backends upwards, and the lowest downwards, from a centre line.

    Equal halves are an even load, whatever the number of backends.
    """
    loads = shown.loads()
    slots = [[load for load in slot if load is not None] for slot in zip(*loads, strict=True)]
    fullest = [max(slot, default=None) for slot in slots]
    emptiest = [min(slot) if len(slot) == len(loads) else None for slot in slots]
    half, nothing = (height - 1) // 2, list[float | None]([None] * len(slots))
    above, below = opposed_rows(shown, (fullest, nothing), (emptiest, nothing), width, half)
    words: list[Run] = [(f"{UP}most", "running"), (f" {DOWN}least", "running")]
    title = caption([label("requests "), *words], top_words(shown.load_top), width, words)
    rows = [title, *above]
    if (height - 1) % 2:
        rows.append([("─" * width, "border")])
    return [*rows, *below]


_SIGNS = {True: ("✓ ", "good"), False: ("✗ ", "muted"), None: ("? ", "muted")}
_BUT = {True: "", False: ", yet no", None: ", not sure"}
"""What follows a figure that reaches its limit, by the answer: it does not read as a yes."""
_SIGN_WORDS = "✓ yes · ✗ no · ? not judged yet"


def answers(balance: Balance) -> list[tuple[RuleCheck, bool | None]]:
    """Return all checks with their answers, always in the same order.

    An answer is that of the check's own figure and conditions; None while the figure is unknown or, except of
    counted requests, while there is no verdict, or if the figure was seen too few times. What is unknown is
    not enough. A figure whose error reaches across its limit answers only where the verdict rests on it.
    """
    judged = balance.word_now is not BalanceWord.UNKNOWN
    starves = BalanceWord.STARVED in {balance.word_now, *balance.also}

    def is_answered(check: RuleCheck) -> bool:
        if check.value is None or _is_open(check):
            return False
        return check.code == "enough" or (
            (judged or check.code == "requests") and (starves or not check.unsure)
        )

    return [(check, check.holds if is_answered(check) else None) for check in rules.checks(balance)]


def _is_open(check: RuleCheck) -> bool:
    """Return whether a check's figure is over its limit, but was seen too few times for an answer."""
    return check.is_rare and check.within is True


def answer_rows(balance: Balance, width: int) -> list[Row]:
    """Return the checks as rows of `width` cells, each with its rule, those that decided first.

    Those on whether it can be judged stand apart.
    """
    answered = answers(balance)
    if balance.word_now is not BalanceWord.UNKNOWN:
        answered.sort(key=lambda answer: (answer[0].code == "enough", answer[1] is not True))
    rows: list[Row] = []
    for enough, group in groupby(answered, key=lambda answer: answer[0].code == "enough"):
        title = "can it be judged?" if enough else "what was found"
        rows.append(heading(title, "" if rows else _SIGN_WORDS, width))
        for check, answer in group:
            told = replace(check, but="") if check.but in balance.reasons else check  # it stands above
            rows += [*_answer_head((told, answer), width), *_rule_rows((told, answer), width)]
    return rows


def _answer_head(answered: tuple[RuleCheck, bool | None], width: int) -> list[Row]:
    """Return a row with the question and the figure that decides on it; two rows where one is too short."""
    check, answer = answered
    limit = limit_text(check)
    limit = f"needs {limit}" if check.code == "enough" else limit.replace("≥", "yes from")
    limit = "not needed here" if answer and check.instead and not check.within else limit
    left: Row = [_SIGNS[answer], (check.question, "title" if answer else "text")]
    right: Row = label_row(
        f"{check.shown or check.name} ",
        (value_text(check), "text" if check.value is not None else "muted"),
        f", {limit}{_BUT[answer] if check.within else ''}",
    )
    gap = width - row_width(left) - row_width(right)
    if gap < 1:
        indent = max(0, width - row_width(right))
        return [fit_row(left, width), fit_row([label(" " * indent), *right], width)]
    return [[*left, label(" " * gap), *right]]


def _rule_rows(answered: tuple[RuleCheck, bool | None], width: int) -> list[Row]:
    check, answer = answered
    if check.value is None or _is_open(check):
        answer_word = "not known"
    else:
        answer_word = "not judged" if answer is None else "no"
    exception = f"{answer_word}: {check.but}" if check.but and check.within is not False else ""
    instead = f"enough without it: {check.instead}" if check.instead and not check.within else ""
    sentences = [sentence for sentence in (exception, check.unsure, check.rule, instead) if sentence]
    words = ". ".join(sentence[:1].upper() + sentence[1:] for sentence in sentences)
    return [fit_row([label(f"    {line}")], width) for line in wrap_sentence(words, width - 4)]


def value_text(check: RuleCheck) -> str:
    """Format a check's value with its unit; "not known" if it is unknown."""
    if check.value is None:
        return "not known"
    # Added to 0.0, so that a rounded zero is never shown as "-0.00".
    number = f"{0.0 + round(check.value, check.digits):.{check.digits}f}"
    number += "" if check.error is None else f" ± {check.error:.{check.digits}f}"
    return f"{number} {check.unit}".rstrip().replace("-", "−")


def limit_text(check: RuleCheck) -> str:
    """Format a check's limit with "≥" and its unit."""
    number = f"{check.limit:.0f}" if check.unit in {"s", "%"} else f"{check.limit:g}"
    return f"≥ {number} {check.unit}".rstrip()


_EDGE = 6
"""Width in cells of the scale at the left of the plot."""


def plot(balance: Balance, width: int, height: int) -> list[Row]:
    """Draw the autocorrelation of the load by lag in seconds, as `height` rows of `width` cells."""
    swing, title = balance.swing, "autocorrelation of the load"
    if swing is None or not swing.autocorrelation:
        nothing = "nothing to plot: loads do not move" if swing is not None else "too few samples yet"
        return [heading(title, "", width), *empty_rows(nothing, width, height - 1)]
    lags = [*swing.autocorrelation]
    axis = PlotAxis(0.0, lags[-1], width - _EDGE)
    plot_height = max(4, height - 3)
    values = axis.columns(lags, [*swing.autocorrelation.values()])
    up = [value if value is None or value >= 0 else None for value in values]
    down = [None if value is None or value >= 0 else -value for value in values]
    lines = draw_mirrored(up, down, axis.width, plot_height, 1.0)
    rows: list[Row] = [
        [(line, mirror_role(("prompt", "prompt"), row, plot_height))] for row, line in enumerate(lines)
    ]
    words = "lag in s"
    if swing.opposite is not None and -1 < swing.opposite + RHYTHM_TURN < 1:
        level = min(plot_height - 1, int(plot_height * (1 - swing.opposite - RHYTHM_TURN) / 2))
        rows[level] = with_line(rows[level])
        words = "a rhythm: ▲ above ┄"
    edges = {0: "+1┤", plot_height // 2: "0┤", plot_height - 1: "−1┤"}
    drawn = [
        [*spread_row([], [(edges.get(index, "│"), "muted")], _EDGE), *row] for index, row in enumerate(rows)
    ]
    return [
        heading(title, words if len(title) + len(words) + 8 <= width else "", width),
        *drawn,
        [label(" " * _EDGE), (_period_marks(balance, swing, axis), "title")],
        [*spread_row([], [label("s ")], _EDGE), label(axis.labels())],
    ]


def _period_marks(balance: Balance, swing: Swing, axis: PlotAxis) -> str:
    """Return the row of text below the plot that marks the rhythm's period; "" without a rhythm.

    Where the verdict names another period, by another rule, none is written beside the mark.
    """
    if swing.period_s is None:
        return ""
    word = short_seconds(swing.period_s)
    mark = "▲" if balance.period_s is not None and word != short_seconds(balance.period_s) else f"▲ {word}"
    return labels_from_cells([(swing.period_s, mark), (swing.period_s / 2, "△ half a period")], axis)


LEAST_PICTURE = 8
"""Least height in rows of the picture with its time axis; with less room the screen scrolls."""
_WORDS_SHARE = 0.3
"""Share of the screen's height for verdict and reasons; further reasons are only counted, and shown in full
with the evidence."""
_PLOT = 10
"""Height in rows of the plot with its axis."""
_WIDE = 150
"""Width in cells from which on plot and questions stand side by side."""
_PLOT_WIDTH = 64
"""Width in cells of the plot beside the questions."""


def balance_screen(
    balance: Balance,
    snapshot: Snapshot,
    width: int,
    height: int,
    *,
    place: str = "",
    coarse: int = 1,
    end_label: str = NOW,
) -> list[Row]:
    """Draw one group's balance on the whole screen: `height` rows of `width` cells, or more, which scroll.

    `place` names the group's position among several ("group 2 of 3"), "" for a single group. `coarse` is
    the factor by which the user has stretched the time per dot column of the graphs, whose end `end_label`
    names.
    """
    inner = width - 4
    words = _words_of_screen(balance, snapshot, inner, max(4, int(_WORDS_SHARE * (height - 2))))
    room = max(LEAST_PICTURE, height - 2 - len(words))
    rows = [*words, *group_picture(balance, snapshot, inner, room, coarse, end_label)]
    more = " w why? " if not place else f" {place} · tab next · w why? "
    return _screen_in_frame(rows, balance, width, max(height, len(rows) + 2), title="balance", note=more)


def evidence_screen(
    balance: Balance, snapshot: Snapshot, width: int, height: int, *, place: str = ""
) -> list[Row]:
    """Draw why a group got its verdict: the checks on its balance with their figures, and a plot.

    The rows are `width` cells wide; there are at least `height` of them, and more if the text needs them (the
    screen scrolls). `place` is the group's position among several ("group 2 of 3"), "" if there is only one.
    """
    inner = width - 4
    words = _words_of_screen(balance, snapshot, inner, height)
    if width >= _WIDE:
        right = answer_rows(balance, inner - _PLOT_WIDTH - 2)
        left = plot(balance, _PLOT_WIDTH, max(_PLOT, height - 2 - len(words)))
        body = side_by_side([left, right], [_PLOT_WIDTH, inner - _PLOT_WIDTH - 2])
    else:
        body = [*answer_rows(balance, inner), *plot(balance, inner, _PLOT)]
    rows = [*words, *body]
    more = f" {place} · tab next · esc back " if place else " esc back "
    return _screen_in_frame(rows, balance, width, max(height, len(rows) + 2), title="why?", note=more)


def _screen_in_frame(
    rows: Sequence[Row], balance: Balance, width: int, height: int, *, title: str, note: str
) -> list[Row]:
    return [
        merge_runs(row)
        for row in frame_rows(
            [[(" ", "text"), *row] for row in rows],
            width,
            height,
            role=frame_role("balance"),
            title=group_tab(balance, title),
            state=word_run(balance),
            about=members(balance),
            note=[(note, "muted")],
        )
    ]


def _words_of_screen(balance: Balance, snapshot: Snapshot, width: int, most_rows: int) -> list[Row]:
    """Return the verdict and its reasons in at most `most_rows` rows; the last row counts those left out.

    No sentence is cut: one that does not fit is left out. What to try has a row in any case.
    """
    verdict = flow_pieces(verdict_pieces(balance, snapshot.routers), width)
    rows = [*verdict, *reason_rows(balance, width)]
    if len(rows) > most_rows:
        total = len(rows)
        verdict = verdict[: max(1, most_rows - 2)] if balance.hint else verdict
        rows = [*verdict, *reason_rows(balance, width, most_rows - 1 - len(verdict))][: most_rows - 1]
        rows.append([label(f"… {total - len(rows)} more rows: w shows all")])
    return [fit_row(row, width) for row in rows]


def group_picture(
    balance: Balance, snapshot: Snapshot, width: int, height: int, coarse: int = 1, end_label: str = NOW
) -> list[Row]:
    """Draw loads and token rates of a group with a time axis: `height` rows of `width` cells, or more."""
    lines = group_lines(balance, snapshot.backends)
    graph = width - GUTTER
    axis = balance_axis(balance, lines, snapshot, graph, coarse)
    below: Row = [label(" " * GUTTER), label(time_axis(graph, axis.step, end_label))]
    if len(lines) < _PAIR:
        return [[label("fewer than two backends report their load: nothing to draw")]]
    slots = group_slots(balance, lines, axis, graph)
    if len(lines) == _PAIR:
        rows = pair_rows(slots, balance.lead_margin, width, height - 1)
    else:
        rows = many_rows(slots, width, height - 1)
    return [fit_row(row, width) for row in (*rows, below)]
