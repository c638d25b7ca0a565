"""Draws the evidence on one level of a sweep: reasons to doubt it, its values, its servers, its requests."""

from __future__ import annotations

from sparktop.graphics import numbers
from sparktop.graphics.cells import fit
from sparktop.model.balance import BalanceWord
from sparktop.model.sweep import LevelEvidence, MarkKind, level_name
from sparktop.panels.parts.figures import (
    WORD_ROLES,
    heading,
    label,
    part_role,
    sentence_rows,
    wrap_sentence,
)
from sparktop.panels.parts.text import Row, Run, fit_row, fitted_names, side_by_side
from sparktop.panels.sweep.live import timeline_rows
from sparktop.panels.sweep.table import MARK_SIGNS, framed_sweep, page_title

_FIGURE = 9
"""Width in cells of a figure of a server."""
_NAME = 13
"""Width in cells of the name of a value."""
_WIDE = 130
"""Width in cells from which on values and servers stand side by side."""
_ROLES = {word.value: role for word, role in WORD_ROLES.items()}


def evidence_screen(
    evidence: LevelEvidence,
    width: int,
    height: int,
    *,
    run: int | None = None,
    simulated: bool = False,
    lengths: bool = False,
) -> list[Row]:
    """Draw the evidence on one level of a sweep in a frame: `height` rows, or more, which scroll.

    `run` is the number of the load run whose requests are drawn; if it is None or there is no such run,
    the newest one is drawn. `lengths` adds the prompt length to the level's name.
    """
    inner = width - 4
    rows = _mark_rows(evidence, inner)
    if width >= _WIDE and (evidence.shares or evidence.balance_word):
        plot_width = (inner - 2) // 2
        left, right = (
            _fact_rows(evidence, plot_width),
            [*_share_rows(evidence, plot_width), *_balance_rows(evidence, plot_width)],
        )
        rows += side_by_side([left, right], [plot_width, plot_width])
    else:
        rows += [*_fact_rows(evidence, inner), *_share_rows(evidence, inner), *_balance_rows(evidence, inner)]
    rows += _timelines_rows(evidence, inner, run, height - 2 - len(rows))
    key = evidence.row.key
    name = level_name(key, lengths=lengths, wide=True)
    title: Row = [*page_title("why?", key.target), (f"{name} ", "title")]
    note = "tab other run" if len(evidence.timelines) > 1 else ""
    return framed_sweep(rows, width, height, title=title, simulated=simulated, note=note)


def _mark_rows(evidence: LevelEvidence, width: int) -> list[Row]:
    if not evidence.row.marks:
        word = (
            "no warning, and no known reason why it is slow"
            if evidence.row.figures
            else "no figures yet: they come once the level is done"
        )
        return [fit_row([label(word)], width)]
    rows: list[Row] = []
    for mark in evidence.row.marks:
        role = "muted" if mark.kind is MarkKind.NOTE else "warn"
        sign: Run = (f"{MARK_SIGNS[mark.kind]} ", role)
        rows += sentence_rows(sign, f"{mark.word}: {mark.message}", "text", width)
    return [fit_row(row, width) for row in rows]


def _fact_rows(evidence: LevelEvidence, width: int) -> list[Row]:
    if not evidence.facts:
        return []
    rows = [heading("figures", "", width)]
    for name, text in evidence.facts:
        lines = wrap_sentence(text, max(10, width - _NAME - 1))
        for index, line in enumerate(lines):
            rows.append(fit_row([label(fit(name if not index else "", _NAME)), (f" {line}", "text")], width))
    return rows


def _share_rows(evidence: LevelEvidence, width: int) -> list[Row]:
    """Return a title, a heading, and a row per server: requests, batch sizes, queue and KV cache.

    Empty if nothing is known about the servers.
    """
    shares = evidence.shares
    if not shares:
        return []
    name_width = min(16, max(7, *(len(share.name) for share in shares)))
    names = fitted_names(tuple(share.name for share in shares), name_width)
    head = [label(fit("server", name_width)), label(fit("requests", _FIGURE, "right"))]
    head += [label(fit(word, _FIGURE, "right")) for word in ("batch", "max run", "max wait", "max KV")]
    rows = [heading("load on each server", "", width), fit_row(head, width)]
    for index, share in enumerate(shares):
        figures = (
            numbers.count(share.requests, 6),
            numbers.UNKNOWN if share.busy_batch is None else f"{share.busy_batch:.1f}",
            numbers.count(share.running_max, 6),
            numbers.count(share.waiting_max, 6),
            numbers.percent(share.kv_cache_max_percent),
        )
        row: Row = [(names[share.name], part_role(index))]
        for text in map(str.strip, figures):
            row.append((fit(text, _FIGURE, "right"), "muted" if text == numbers.UNKNOWN else "text"))
        rows.append(fit_row(row, width))
    return rows


def _balance_rows(evidence: LevelEvidence, width: int) -> list[Row]:
    """Return rows with the level's balance verdict and the verdict's reasons; no rows without a verdict."""
    word = evidence.balance_word
    if word is None:
        return []
    rows = [heading("balance between servers", "in this level alone", width)]
    is_bad = any(verdict.value == word and verdict.bad for verdict in BalanceWord)
    verdict_text = "not judged" if word == BalanceWord.UNKNOWN.value else word
    rows.append([(f"{'▲ ' if is_bad else ''}{verdict_text}", _ROLES.get(word, "text"))])
    for reason in evidence.balance_reasons:
        rows += sentence_rows(("· ", "muted"), reason, "text", width)
    if evidence.balance_cause:
        rows += sentence_rows(label("cause  "), evidence.balance_cause, "text", width)
    if evidence.balance_hint:
        rows += sentence_rows(("→ ", "key"), evidence.balance_hint, "key", width)
    return [fit_row(row, width) for row in rows]


def _timelines_rows(evidence: LevelEvidence, width: int, run: int | None, room: int) -> list[Row]:
    """Return the requests of a load run over time, and those of further runs as far as `room` rows allow."""
    if not evidence.timelines:
        reason = evidence.why_no_timeline or "its requests were not reported"
        return [heading("requests over time", "", width), fit_row([label(f"no timeline: {reason}")], width)]
    runs = evidence.timelines
    run_index = next((index for index, timeline in enumerate(runs) if timeline.run == run), len(runs) - 1)
    rows = timeline_rows(runs[run_index], width)
    for offset in range(1, len(runs)):
        more = timeline_rows(runs[run_index - offset], width)
        if len(rows) + len(more) > room:
            break
        rows += more
    return rows
