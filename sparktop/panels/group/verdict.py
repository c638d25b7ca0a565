"""The verdict on a group's balance as text: its label, values in short pieces, and reasons as sentences."""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.analysis.balance.rules import LIFETIMES, LOOKS_APART_S
from sparktop.graphics import numbers
from sparktop.graphics.cells import cell_width, fit
from sparktop.model.balance import Balance, BalanceWord
from sparktop.model.router import RouterView
from sparktop.model.text import short_seconds
from sparktop.panels.group.graphs import strategy_of
from sparktop.panels.parts.figures import WORD_ROLES, bar_runs, figure, label, label_row, sentence_rows
from sparktop.panels.parts.text import Row, Run, row_text, row_width, shorten_piece

_WORTH_A_FIGURE = 1.0
"""Percentage starved or lost below which no value is shown."""
_WINDOW_BAR = 10
"""Cells of the bar that shows how much of the judged window is filled."""
_BEFORE_HINT = 2
"""Values that stand before what to try: the period and the loss."""


def word_run(balance: Balance) -> Run:
    """Return the announced verdict as a styled text segment, with a warning sign if the verdict is bad.

    If the newest window has another verdict, which is not confirmed yet, that one follows: "balanced →
    uneven?".
    """
    return f"{_announced_words(balance)}{balance.doubt}", word_role(balance)


def _announced_words(balance: Balance) -> str:
    sign = "▲ " if balance.bad else ""
    return f"{sign}{balance.title}{balance.sweep_words}"


def word_role(balance: Balance) -> str:
    """Return the role (colour name) of the announced verdict.

    A bad verdict on backends whose router is not known, or that a sweep of this program loads, is "text", a
    neutral colour. A good verdict that the newest window contradicts is "warn", or "text" if that window's
    verdict is not bad either.
    """
    if balance.word.bad:
        return WORD_ROLES[balance.word] if balance.bad else "text"
    if balance.word is balance.word_now:
        return WORD_ROLES[balance.word]
    wrong = balance.word_now.bad and balance.router is not None and not balance.in_sweep
    return "warn" if wrong else "text"


def _swing_period_s(balance: Balance) -> float | None:
    """Return the period of the swing in seconds; None if neither verdict, announced or newest, is one."""
    swings = BalanceWord.OSCILLATING in {balance.word, balance.word_now, *balance.also}
    return balance.period_s if swings else None


def verdict_pieces(balance: Balance, routers: Sequence[RouterView], *, short: bool = False) -> list[Row]:
    """Return the verdict and its values as pieces of text for `flow_pieces`, the most important first.

    `short` leaves out since when the verdict has been announced.
    """
    word_piece: Row = [word_run(balance)]
    if balance.since is not None and not short:
        role = word_role(balance)
        since = label(f" since {balance.since.astimezone():%H:%M:%S}")
        word, comma, reason = _announced_words(balance).partition(", ")
        word_piece = [(word, role), since, (f"{comma}{reason}{balance.doubt}", role)]
    pieces: list[Row] = [word_piece]
    if balance.unrouted:
        pieces.append([label(balance.unrouted)])
    period_s = _swing_period_s(balance)
    if period_s is not None:
        pieces.append([label("every "), figure(short_seconds(period_s))])
    judged = balance.word not in {BalanceWord.UNKNOWN, BalanceWord.IDLE}
    starved = _starved_pieces(balance) if judged else []
    for word in balance.also:
        role = "text" if balance.in_sweep else WORD_ROLES[word]
        if word is BalanceWord.STARVED and starved:
            pieces += _starved_pieces(balance, ("starves ", role))
            starved = []
        else:
            pieces.append([label("also "), (word.said, role)])
    if judged:
        flips = balance.lead_changes_per_min
        if flips:
            pace = figure(numbers.rate(flips, 5).strip())
            pieces.append(label_row("lead changes ", pace, "/min"))
        pieces += [*starved, *_lost_pieces(balance)]
    pieces += _window_pieces(balance)
    strategy, is_configured = strategy_of(balance, routers)
    if strategy is not None:
        name = figure(fit(strategy, min(24, cell_width(strategy))))
        pieces.append(label_row("strategy ", name, " (config)" if is_configured else ""))
    return pieces


def verdict_line(balance: Balance, width: int) -> Row:
    """Return the verdict in one row of at most `width` cells: the word, the period, the loss, who starves.

    Values that are unknown or do not fit are left out. Where there is no verdict yet, the row shows how much
    of the data that it needs is there, or why it is not enough.
    """
    return _pieces_that_fit([[word_run(balance)], *_value_pieces(balance)], width)


def value_line(balance: Balance, width: int) -> Row:
    """Return a row as `verdict_line` does, for a frame that has the word already; what to try comes last."""
    values = _value_pieces(balance)
    if balance.in_sweep and balance.word.bad:
        row = [label("during the sweep: "), (balance.word.value, word_role(balance))]
        if values:
            row += [label(", "), *values[0]]
        return _pieces_that_fit([row], width)
    if not values:
        since = "" if balance.since is None else f"since {balance.since.astimezone():%H:%M:%S}"
        values = [[label(since or "–")], *_window_pieces(balance)]
    # What to try is worth more than the share of the backend that starves.
    for shown_values in (values, values[:_BEFORE_HINT]) if balance.hint else ():
        row = _pieces_that_fit(shown_values, width)
        hint = shorten_piece([(balance.hint or "", "accent")], width - row_width(row) - 3)
        if row_text(hint) and "…" not in row_text(hint):
            return [*row, label(" · "), *hint]
    return _pieces_that_fit(values, width)


def _value_pieces(balance: Balance) -> list[Row]:
    """Return the pieces of text of `verdict_line` after the word, the most important first."""
    period_s = _swing_period_s(balance)
    values: list[Row] = []
    if period_s is not None:
        values.append([label("every "), figure(short_seconds(period_s))])
    if balance.word.bad and not balance.in_sweep:
        values += [*(_lost_pieces(balance) if balance.lost_words else []), *_starved_pieces(balance)]
    if balance.is_slow and not balance.word.bad:
        return [*values, *([label(reason)] for reason in balance.reasons[:1])]
    if balance.word is BalanceWord.UNKNOWN:
        values += [[label(reason)] for reason in balance.reasons[:1]] if balance.known_in_s is None else []
        values += _window_pieces(balance)
    return values


def _pieces_that_fit(pieces: Sequence[Row], width: int) -> Row:
    """Return the first piece, and those of the others that fit into `width` cells, separated by " · "."""
    *before, (text, role) = pieces[0]
    row = list(pieces[0])
    while row_width(row) > width and ", " in text:
        text = text.rpartition(", ")[0]
        row = [*before, (text, role)]
    for piece in pieces[1:]:
        if row_width(row) + 3 + row_width(piece) <= width:
            row += [label(" · "), *piece]
    return row


def _starved_pieces(balance: Balance, verb: Run = ("nearly empty ", "muted")) -> list[Row]:
    """Return a piece of text on the backend that was nearly empty most; empty if none was.

    It counts while another backend has more than its share; time in which it got no request at all is apart.
    """
    percent = balance.starved_percent
    most_starved = max(percent, key=lambda backend: percent[backend], default=None)
    if most_starved is None or percent[most_starved] < _WORTH_A_FIGURE:
        return []
    share = numbers.percent(percent[most_starved]).strip()
    name = fit(most_starved, min(16, cell_width(most_starved)))
    away_s = balance.away_s.get(most_starved)
    away = "" if away_s is None else f", {short_seconds(away_s)} without requests"
    return [label_row(f"{name} ", verb, figure(share), f" of the time{away}")]


def _lost_pieces(balance: Balance) -> list[Row]:
    """Return pieces on the throughput lost against an even split; none without a router or a loss."""
    if balance.router is None or balance.in_sweep or not (balance.lost_words or balance.word.bad):
        return []
    if not balance.lost_words:
        why = f"because {balance.lost_unknown or 'it is not judged'}"
        if balance.lost_before_percent is None or balance.lost_before_s is None:
            return [[label("throughput lost: not known")], [label(why)]]
        before = numbers.percent(balance.lost_before_percent).strip()
        ago = label(f", {numbers.age(balance.lost_before_s)} ago")
        return [[label("throughput lost: about "), figure(before), ago], [label(f"not known now, {why}")]]
    about = "" if balance.lost_words.startswith("<") else "about "
    return [label_row(about, figure(balance.lost_words), " of throughput lost")]


def _covers_needed_time(balance: Balance) -> bool:
    """Whether the verdict covers all the time that it needs."""
    return not balance.needed_s or balance.window_s >= balance.needed_s - 1


def _shows_progress(balance: Balance) -> bool:
    """Whether a bar shows the time watched: where a verdict is pending, or it is too short.

    Not where a reason says why it is 0.
    """
    if balance.known_in_s is not None:
        return True
    return not _covers_needed_time(balance) and bool(balance.window_s or not balance.reasons)


def _window_pieces(balance: Balance) -> list[Row]:
    """Return pieces of text on the time that a verdict covers, and the rate of its samples.

    While this time is too short for a verdict, a bar shows which part of the needed time has passed, and what
    the needed time is derived from if it is above the shortest.
    """
    pieces: list[Row] = []
    if _shows_progress(balance):
        left_s = balance.known_in_s
        watched_s = balance.window_s if left_s is None else max(0.0, balance.needed_s - left_s)
        words = f" {balance.window_s:.0f} of {balance.needed_s:.0f} s"
        pending = balance.word is BalanceWord.UNKNOWN or left_s is not None
        verb = "watched " if pending else "judged over "
        if left_s is not None:  # later than the time observed is long enough: two judgements must agree
            verb, words = "verdict ", f" in {balance.known_in_words}"
        share = watched_s / balance.needed_s
        pieces.append([label(verb), *bar_runs(share, _WINDOW_BAR, "generation"), figure(words)])
        if balance.e2e_s is not None and balance.needed_s == LIFETIMES * balance.e2e_s:
            why = "a verdict needs" if pending else f"{balance.needed_s:.0f} s is"
            pieces.append([label(f"{why} {LIFETIMES} × the median E2E")])
    elif balance.window_s and balance.word is not BalanceWord.UNKNOWN:
        pieces.append([label("judged over the last "), figure(f"{balance.window_s:.0f} s")])
    if balance.polled_words and _covers_needed_time(balance):
        pieces.append([label(balance.polled_words)])
    if apart_words := samples_apart(balance):
        pieces.append([label(apart_words)])
    return pieces


def samples_apart(balance: Balance) -> str:
    """Return how far the samples that a verdict compares lie apart; "" where polls nearly coincide."""
    apart_ms = balance.looks_apart_ms
    if apart_ms is None or apart_ms <= 1000 * LOOKS_APART_S:
        return ""
    return f"samples up to {numbers.duration(apart_ms / 1000, 8).strip()} apart"


def reason_rows(balance: Balance, width: int, height: int | None = None) -> list[Row]:
    """Return rows with what to try, the most likely cause, and the reasons for a verdict.

    If they do not fit into `height` rows, sentences are left out; none is cut but a hint that does not fit
    alone. None is any height.
    """
    sentences: list[list[Row]] = []
    if balance.hint:
        hint = balance.hint
        if height is not None and 0 < height < len(sentence_rows(label("→ "), hint, "key", width)):
            # What to try is the answer: its beginning goes before all evidence.
            hint = row_text(shorten_piece([(hint, "key")], width - 2)).rstrip()
        sentences.append(sentence_rows(label("→ "), hint, "key", width))
    if balance.cause:
        sentences.append(sentence_rows(label("cause  "), balance.cause, "text", width))
    # While a verdict is pending, the first reason says what the bar of the time watched says.
    reasons = balance.reasons if balance.known_in_s is None else balance.reasons[1:]
    for index, reason in enumerate(reasons):
        sentences.append(sentence_rows(("· ", "muted"), reason, "muted" if index else "text", width))
    rows: list[Row] = []
    for sentence in sentences:
        if height is None or len(rows) + len(sentence) <= height:
            rows += sentence
    return rows
