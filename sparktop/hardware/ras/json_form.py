"""Parses the JSON answer of NCCL's RAS thread (NCCL 2.28.7 and newer)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from sparktop.hardware.ras.terms import (
    MOST_COMMUNICATORS,
    MOST_RANKS,
    RanksError,
    known_host,
    known_pid,
    plain_hash,
)
from sparktop.model.ranks import Communicator, MissingRank, Rank, RanksAnswer, RankStatus
from sparktop.model.text import clean

_MOST_COUNTS = 16
_IN_PROGRESS = 7
"""NCCL's code for an operation that has not ended."""
_MISSING_COMMA = re.compile(r'("nvml_dev":\s*-?\d+)(\s*"status")')
_LARGEST = 2**63


def parse_json(text: str) -> RanksAnswer:
    """Parse the JSON document in `text`, which may have other lines before it.

    Raises:
        RanksError: there is no complete document of the known form.
    """
    document = text[text.find("{") :] if "{" in text else ""
    found = _loaded(document)
    if not isinstance(found, dict) or not isinstance(found.get("communicators"), list):
        raise RanksError("the answer is not NCCL's: it lists no communicators")
    ras = found.get("ras")
    ras = ras if isinstance(ras, dict) else {}
    return RanksAnswer(
        nccl=_text(found.get("nccl_version")),
        communicators=tuple(_communicators(found["communicators"][:MOST_COMMUNICATORS])),
        timeouts=_whole(ras.get("timeouts_count")) or 0,
        took_s=_seconds(ras.get("collection_time_sec")),
    )


def _loaded(document: str) -> object:
    """Return the first JSON value of `document`.

    NCCL 2.28.7 and 2.28.9 leave out the comma after `nvml_dev` of missing ranks; it is inserted where the
    document cannot be parsed without it.
    """
    for text in (document, _MISSING_COMMA.sub(r"\1,\2", document)):
        try:
            return json.JSONDecoder().raw_decode(text)[0]
        except (ValueError, RecursionError):
            continue
    raise RanksError("half an answer of NCCL, or none: its JSON cannot be parsed")


def _communicators(given: list[object]) -> Iterator[Communicator]:
    for one in given:
        if not isinstance(one, dict):
            raise RanksError("the answer is not NCCL's: a communicator without fields")
        ranks, others = _entries(one.get("ranks")), _entries(one.get("missing_ranks"))
        missing = [entry for entry in others if _is_silent(entry)]
        absent = [entry for entry in others if entry not in missing]
        yield Communicator(
            plain_hash(_text(one.get("hash")) or ""),
            _text(one.get("secondary_hash")),
            _whole(one.get("size")) or len(ranks) + len(others),
            (*map(_rank, ranks), *(replace(_rank(entry), status=RankStatus.ABSENT) for entry in absent)),
            tuple(_missing(entry) for entry in missing),
        )


def _entries(given: object) -> list[Mapping[str, object]]:
    return [one for one in given[:MOST_RANKS] if isinstance(one, dict)] if isinstance(given, list) else []


def _rank(entry: Mapping[str, object]) -> Rank:
    status = entry.get("status")
    error = _whole(status.get("async_error")) if isinstance(status, dict) else None
    return Rank(
        _whole(entry.get("rank")),
        known_host(_text(entry.get("host"))),
        known_pid(_whole(entry.get("pid"))),
        _whole(entry.get("cuda_dev")),
        _status(status if isinstance(status, dict) else {}),
        error if error not in {None, 0, _IN_PROGRESS} else None,
        _counts(entry.get("collective_counts")),
    )


def _is_silent(entry: Mapping[str, object]) -> bool:
    """Return whether the process of a missing rank does not answer: it may answer and not know the group."""
    status = entry.get("status")
    flags = status if isinstance(status, dict) else {}
    return flags.get("unresponsive") is not False or flags.get("considered_dead") is True


def _missing(entry: Mapping[str, object]) -> MissingRank:
    rank = _whole(entry.get("rank"))
    if rank is None:
        raise RanksError("the answer is not NCCL's: a missing rank without its number")
    status = entry.get("status")
    dead = isinstance(status, dict) and status.get("considered_dead") is True
    host, pid = known_host(_text(entry.get("host"))), known_pid(_whole(entry.get("pid")))
    return MissingRank(rank, host, pid, _whole(entry.get("cuda_dev")), dead)


def _status(status: Mapping[str, object]) -> RankStatus:
    if any(status.get(name) is True for name in ("finalize_called", "destroy_flag", "abort_flag")):
        return RankStatus.STOPPING
    begun = _whole(status.get("init_state"))
    if begun == _IN_PROGRESS:
        return RankStatus.STARTING
    return RankStatus.RUNNING if begun == 0 else RankStatus.FAILED


def _counts(given: object) -> dict[str, int]:
    if not isinstance(given, dict):
        return {}
    pairs = ((clean(name, 40), _whole(value)) for name, value in list(given.items())[:_MOST_COUNTS])
    return {name: value for name, value in pairs if value is not None and value >= 0}


def _whole(value: object) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) < _LARGEST
    return value if whole else None  # type: ignore[return-value]  # an int, as checked


def _seconds(value: object) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if 0 <= value < _LARGEST else None


def _text(value: object) -> str | None:
    return clean(value, 100) if isinstance(value, str) else None
