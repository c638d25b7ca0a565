"""What NCCL answered about the ranks of backends: as JSON, as a line of text, and as a table."""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.model.ranks import Communicator, MissingRank, Rank, RanksView
from sparktop.model.snapshot import BackendView
from sparktop.report import cell
from sparktop.report.table import Column, Kind, Table

_LONG = 300
_MOST_RANKS = 64
"""Most ranks of a communicator, and most communicators, in a JSON document."""


def ranks_json(found: RanksView | None) -> dict[str, object] | None:
    """Return the verdict, and the counts of all ranks that answered; None if NCCL was not asked."""
    if found is None:
        return None
    verdict, answer = found.verdict, found.answer
    return {
        "verdict": verdict.word.value,
        "sentence": verdict.sentence,
        "hint": verdict.hint,
        "warning": found.warning,
        "answers": verdict.answers,
        "span_s": verdict.span_s,
        "age_s": found.age_s,
        "asking": found.asking,
        "asked_on": found.node,
        "nccl": None if answer is None else answer.nccl,
        "behind": None if verdict.least is None else verdict.least.rank,
        "ahead": None if verdict.most is None else verdict.most.rank,
        "missing": [one.rank for one in verdict.missing],
        "communicators": [
            _communicator(found, comm) for comm in (answer.communicators if answer else ())[:_MOST_RANKS]
        ],
    }


def _communicator(found: RanksView, comm: Communicator) -> dict[str, object]:
    return {
        "hash": comm.hash or None,
        "size": comm.size,
        "ranks": [_rank(found, rank) for rank in comm.ranks[:_MOST_RANKS]],
        "missing_ranks": [_missing(found, rank) for rank in comm.missing[:_MOST_RANKS]],
    }


def _rank(found: RanksView, rank: Rank) -> dict[str, object]:
    return {
        "rank": rank.rank,
        "count": rank.many,
        "machine": None if rank.host is None else found.place(rank.host),
        "pid": rank.pid,
        "gpu": rank.device,
        "status": rank.status.value,
        "error": rank.error,
        "launched": dict(rank.counts),
    }


def _missing(found: RanksView, rank: MissingRank) -> dict[str, object]:
    machine = None if rank.host is None else found.place(rank.host)
    return {"rank": rank.rank, "machine": machine, "pid": rank.pid, "gpu": rank.device, "dead": rank.dead}


def ranks_words(view: BackendView) -> str:
    """Return the verdict on a backend's ranks in one line; "" if NCCL was not asked.

    Its sentence is left out where it stands in the reason of the backend's standstill.
    """
    found = view.ranks
    if found is None:
        return ""
    verdict = found.verdict
    said = view.progress is not None and verdict.sentence in view.progress.why
    return f"{_ABOUT}: {verdict.word.value if said else verdict.sentence} ({_rests_on(found)})"


_ABOUT = "ranks (NCCL)"


def ranks_table(backends: Sequence[BackendView]) -> Table:
    """Return a table with the verdict on the ranks of each backend about which NCCL was asked."""
    columns = (
        Column("backend", Kind.NAME),
        Column("verdict", Kind.WORD),
        Column("about", Kind.NAME),
        Column("answers", Kind.WORD),
    )
    rows = (
        (
            cell.name(one.name),
            found.verdict.word.value,
            cell.name(found.verdict.sentence, _LONG),
            _rests_on(found),
        )
        for one in backends
        if (found := one.ranks) is not None
    )
    return Table("Ranks, by NCCL", columns, tuple(rows))


def _rests_on(found: RanksView) -> str:
    verdict = found.verdict
    span = f" over {cell.seconds(verdict.span_s)} s" if verdict.answers > 1 else ""
    return f"{verdict.answers} answer{'' if verdict.answers == 1 else 's'}{span}"
