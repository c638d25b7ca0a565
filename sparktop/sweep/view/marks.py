"""Lists the marks of a level: reasons to doubt its metrics, and known reasons why it is slow."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from pydantic import JsonValue

from sparktop.model.balance import BalanceWord
from sparktop.model.snapshot import LimitKind
from sparktop.model.sweep import Mark, MarkKind
from sparktop.sweep.result.results import LevelResult, LimitSide, TargetResult, Validity
from sparktop.sweep.run.server_side import FULL_PERCENT
from sparktop.sweep.terms.definitions import DRIFT, QUEUE_LIMITED, SHORT_PROMPT, WARNINGS

PADDING, UNBALANCED, PREEMPTING, KV_FULL = "padding", "unbalanced", "preempting", "kv_full"
REFUSED, LIMITED = "refused", "limited"
_UNMARKED = {"unknown", LimitKind.CLIENT.value, LimitKind.CLIENT_OR_ROUTER.value}
"""Limits that are no reason why a level is slow: the client is the sweep."""
_WAITED_FOR = {"slots": "slots", "KV cache": "KV cache", "prefill compute": "prefill"}
"""What requests wait for at a limit, as narrow tables name it: the first mark of a level may be the only one
that fits."""
_LIMIT_BRIEF = {
    LimitKind.BANDWIDTH.value: "memory bw",
    LimitKind.DECODE.value: "decode",
    LimitKind.PREFILL.value: "prefill",
    LimitKind.CPU.value: "CPU core",
    LimitKind.POWER.value: "power",
    LimitKind.NETWORK.value: "network",
}
"""One word for limits with long names."""
_WHOLE_FROM = 10.0
"""Percent from which on an error is written without decimals."""
_IN_BUNCHES = "routed in bunches"
"""Label of a level whose requests went to the same server too often in a row."""
_WORST_BALANCE = {word.value for word in BalanceWord if word.bad}


def marks_of(level: LevelResult) -> tuple[Mark, ...]:
    """Return all marks of a level: doubts, the most serious first, why the level is slow, small errors.

    A level that the server refused has a single mark with the server's message.
    """
    if level.error is not None:
        return (Mark(REFUSED, "left out", level.error),)
    order = {code: place for place, code in enumerate(WARNINGS)}
    validity = sorted(level.validity, key=lambda mark: order.get(mark.code, len(order)))
    doubts = (_mark_of(reason, level, MarkKind.WARNING) for reason in validity)
    notes = (_mark_of(note, level, MarkKind.NOTE) for note in level.notes)
    return (*doubts, *_slowness_marks(level), *notes)


def _mark_of(reason: Validity, level: LevelResult, kind: MarkKind) -> Mark:
    word, brief = _mark_words(reason, level)
    return Mark(reason.code, word, reason.message, kind, brief, reason.ttft_percent)


def ttft_error_words(percent: float, also: str = "") -> str:
    """Return by how much a TTFT may be too high, rounded up: "measured TTFT up to 0.3 % too high".

    What is too high by an unknown part follows with `also`: "measured TTFT (up to 12 %) and ITL too high".
    """
    decimals = 1 if percent < _WHOLE_FROM else 0
    bound = math.ceil(round(percent * 10**decimals, 6)) / 10**decimals
    words = f"up to {max(bound, 0.1):.{decimals}f} %"
    return f"measured TTFT ({words}) and {also} too high" if also else f"measured TTFT {words} too high"


def _mark_words(reason: Validity, level: LevelResult) -> tuple[str, str]:
    """Return (label, label in one word) of a doubt.

    That of requests that waited says what for, that of prompts has their length, that of a late load
    generator what it does to the TTFT.
    """
    if reason.ttft_percent is not None:
        also = "ITL" if reason.itl else ""
        return ttft_error_words(reason.ttft_percent, also), "times inexact" if also else "TTFT inexact"
    warning = WARNINGS.get(reason.code)
    if warning is None:  # of another version's file: the words of its code, no markup
        return " ".join(re.findall(r"[^\W_]+", reason.code)), ""
    waited_for = None if level.limited_by is None else _WAITED_FOR.get(level.limited_by.kind)
    if reason.code == QUEUE_LIMITED and waited_for is not None:
        return f"{warning.word} for {waited_for}", waited_for
    counted, asked = level.counted_prompt_tokens, level.asked_prompt_tokens
    if reason.code == SHORT_PROMPT and counted is not None and asked is not None:
        return f"prompt of {counted:,.0f} tokens, not {asked:,.0f}", warning.brief
    return warning.word, warning.brief


def _slowness_marks(level: LevelResult) -> Iterator[Mark]:
    server = level.server
    fullest = None if server is None else server.kv_fullest_percent or server.kv_cache_max_percent
    if (fullest or 0.0) >= FULL_PERCENT:
        share = f"{fullest:.0f} %"
        message = f"the KV cache was full ({share}): requests waited for memory, not for computing"
        yield Mark(KV_FULL, "KV cache full", message, MarkKind.SLOW)
    if server is not None and server.preemptions:
        count = server.preemptions
        message = f"{count:.0f} times a request lost its KV cache and was computed again"
        yield Mark(PREEMPTING, "preempting", message, MarkKind.SLOW)
    if level.padding_percent:
        graph = round(level.concurrency / (1 - level.padding_percent / 100))
        message = (
            f"a batch of {level.concurrency} runs in a CUDA graph of {graph}: {level.padding_percent:.1f} % "
            "of what is computed is padding"
        )
        yield Mark(PADDING, f"{level.padding_percent:.0f} % padding", message, MarkKind.SLOW)
    limit = level.limited_by
    if limit is not None and limit.kind not in _UNMARKED:
        where = "" if limit.server is None else f"{limit.server}: "
        message, brief = f"{where}{_limit_reason(limit)}", _LIMIT_BRIEF.get(limit.kind, limit.kind)
        yield Mark(LIMITED, f"limited by {limit.kind}", message, MarkKind.SLOW, brief=brief)
    word = balance_word(level)
    if word in _WORST_BALANCE:
        reasons = balance_reasons(level)
        message = f"the load between backends was {word}{': ' + reasons[0] if reasons else ''}"
        yield Mark(UNBALANCED, word, message, MarkKind.SLOW)
    elif _is_bunched(level):
        sentence = _balance_text(level, "runs_test", "sentence") or ""
        yield Mark(UNBALANCED, _IN_BUNCHES, sentence, MarkKind.SLOW, brief="bunches")


def drift_words(target: TargetResult) -> str:
    """Return that the answer of a search is not certain, as its last clause; "" if no change was seen."""
    changes = (mark.message for level in target.levels for mark in level.validity if mark.code == DRIFT)
    return "".join(f"; not certain: {change}" for change in changes)


def limit_words(level: LevelResult) -> str | None:
    """Return what held the servers of a level back, in one line; None if that was not judged."""
    limit = level.limited_by
    if limit is None:
        return None
    where = "" if limit.server is None else f" on {limit.server}"
    return f"{limit.kind}{where}: {_limit_reason(limit)}"


def _limit_reason(limit: LimitSide) -> str:
    """Return why a level is limited by what it is, then what to try."""
    return "; ".join(filter(None, (limit.reason, limit.hint)))


def _balance_text(level: LevelResult, *keys: str) -> str | None:
    """Return the text at these keys of a level's balance; None without it, or if it is no text."""
    value: JsonValue = level.balance
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, str) else None


def _is_bunched(level: LevelResult) -> bool:
    """Return whether a router chose the same backend too often in a row, by the runs test of their order."""
    return _balance_text(level, "runs_test", "word") == "bunched"


def balance_word(level: LevelResult) -> str | None:
    """Return the balance verdict of a level, such as "uneven"; None if the level was not analysed."""
    return _balance_text(level, "verdict")


def balance_fields(level: LevelResult) -> dict[str, Any]:
    """Return the fields of a `LevelEvidence` on the balance of a measured level."""
    return {
        "balance_word": balance_word(level),
        "balance_reasons": balance_reasons(level),
        "balance_cause": _balance_text(level, "cause"),
        "balance_hint": _balance_text(level, "hint"),
    }


def balance_reasons(level: LevelResult) -> tuple[str, ...]:
    """Return the sentences that explain a level's balance verdict, then the sentence of its runs test."""
    reasons = (level.balance or {}).get("reasons")
    sentences = [reason for reason in reasons if isinstance(reason, str)] if isinstance(reasons, list) else []
    order = _balance_text(level, "runs_test", "sentence")
    if order is not None:
        bunched = f"{_IN_BUNCHES}: " if _is_bunched(level) else ""
        sentences.append(f"order of requests: {bunched}{order}")
    return tuple(sentences)
