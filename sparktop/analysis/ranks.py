"""The verdict on the ranks of a job, from several answers of NCCL while the engine stands still.

Moving counts prove life. Counts that stand still and are equal prove nothing: NCCL does not count collective
operations inside CUDA graphs. Counts that stand still and differ mean that the ranks wait for each other at
different operations. One answer alone proves nothing either: ranks launch ahead of each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from sparktop.graphics.numbers import count_words
from sparktop.model.ranks import (
    ALL_OPERATIONS,
    Communicator,
    MissingRank,
    Rank,
    RanksAnswer,
    RanksReading,
    RankStatus,
    RanksVerdict,
    RanksWord,
)
from sparktop.model.text import names_in_words

LEAST_ANSWERS = 3
LEAST_SPAN_S = 10.0
"""Nothing is judged on fewer answers, or over fewer seconds."""
_SLACK_S = 0.1
"""Answers at equal distances may arrive a little early."""
_LEAST_SIZE = 2
"""Ranks in a communicator that can wait for each other; also answers that can be compared."""
_MOST_RANKS_NAMED = 3
"""Most missing ranks that are named."""

NameHost = Callable[[str | None], str]
"""Returns the name of a machine for an address that NCCL reports."""
_CallCounts = Mapping[tuple[str, str | None, int | None, int, str], int]
"""Counts by (hash, secondary hash, rank, index of the entry, operation)."""


_Answered = tuple[float, RanksAnswer]
"""The time at which an answer arrived, in seconds, and the answer."""


def judge_ranks(readings: Sequence[RanksReading], still_since: float | None, place: NameHost) -> RanksVerdict:
    """Return the verdict on the ranks of an engine from the readings about it, oldest first.

    `still_since` is the time of the engine's last progress, in seconds; None if it makes progress or holds no
    request. Only answers after that time, and after the last query that failed, are evidence. If several jobs
    answer, those whose counts move are not the job of an engine that stands still.
    """
    ended = [reading for reading in readings if reading.answer is not None or reading.problem is not None]
    if not ended:
        return RanksVerdict(RanksWord.ASKING, "NCCL is asked for the first time")
    if (problem := ended[-1].problem) is not None:
        return RanksVerdict(RanksWord.FAILED, problem)
    return _verdict_on_own_job(
        [_judge_job(job, still_since, place) for job in _answers_by_job(ended)], still_since
    )


def _verdict_on_own_job(verdicts: Sequence[RanksVerdict], still_since: float | None) -> RanksVerdict:
    """Return the verdict on the engine's own job, as far as that is known among the jobs that answer."""
    still = [verdict for verdict in verdicts if verdict.word is not RanksWord.MOVING]
    if len(verdicts) == 1 or not still:
        return verdicts[-1]
    if len(still) == 1 and still_since is not None:
        return still[0]
    asking = next((verdict for verdict in still if verdict.word is RanksWord.ASKING), None)
    if asking is not None:
        return asking
    words = names_in_words(sorted({verdict.word.value for verdict in verdicts}))
    sentence = (
        f"no verdict: {len(verdicts)} jobs answer here, and which is this server's is not known ({words})"
    )
    return RanksVerdict(RanksWord.NO_VERDICT, sentence, answers=sum(verdict.answers for verdict in verdicts))


def _answers_by_job(ended: Sequence[RanksReading]) -> list[list[_Answered]]:
    """Return the answers after the last failed query, by job; the job that answered last is the last."""
    jobs: dict[frozenset[str], list[_Answered]] = {}
    for reading in ended:
        if reading.answer is None:
            jobs.clear()
            continue
        answers = jobs.pop(reading.answer.job, [])
        jobs[reading.answer.job] = [*answers, (reading.at, reading.answer)]
    return list(jobs.values())


def _judge_job(answers: Sequence[_Answered], still_since: float | None, place: NameHost) -> RanksVerdict:
    """Return the verdict on one job from its answers, oldest first."""
    _, newest = answers[-1]
    evidence = [(at, answer) for at, answer in answers if still_since is not None and at >= still_since]
    if _missing_ranks(newest):
        return _judge_missing(answers, evidence, still_since, place)
    # While the engine stands still, an answer of an earlier standstill proves nothing.
    if _has_moved(answers if still_since is None else evidence):
        moving = RanksVerdict(RanksWord.MOVING, "counts move: not stuck, but in a long step or slow")
        return _with_evidence(answers[-2:], moving)
    if (changing := _changing_verdict(newest, place)) is not None:
        return changing
    if still_since is None:
        sentence = "nothing to judge: the server makes progress, or holds no request"
        return _with_evidence(answers, RanksVerdict(RanksWord.NO_VERDICT, sentence))
    alike = _newest_alike(evidence, lambda timed: sorted(_counts(timed[1]).items(), key=str))
    if not _is_enough(alike):
        return _asking_verdict(alike)
    return _with_evidence(alike, _judge_frozen(newest, place))


def _has_moved(answers: Sequence[_Answered]) -> bool:
    """Return whether any count differs between the last two answers, of communicators in both."""
    if len(answers) < _LEAST_SIZE:
        return False
    (_, last_but_one), (_, newest) = answers[-2:]
    before, after = _counts(last_but_one), _counts(newest)
    return any(before[key] != count for key, count in after.items() if key in before)


def _judge_missing(
    answers: Sequence[_Answered], evidence: Sequence[_Answered], still_since: float | None, place: NameHost
) -> RanksVerdict:
    """Return the verdict on a job of which ranks are missing in the newest answer."""
    _, newest = answers[-1]
    missing = _missing_ranks(newest)
    words = _missing_text(missing, place)
    if still_since is None:
        sentence = f"no verdict: {words}, but the server makes progress or holds no request"
        return _with_evidence(answers, RanksVerdict(RanksWord.NO_VERDICT, sentence, missing=missing))
    numbers = {rank.rank for rank in missing}
    alike = _newest_alike(evidence, lambda item: {rank.rank for rank in _missing_ranks(item[1])} == numbers)
    if not _is_enough(alike):
        return replace(_asking_verdict(alike), missing=missing)
    where = names_in_words(sorted({place(rank.host) for rank in missing})[:_MOST_RANKS_NAMED])
    verdict = RanksVerdict(RanksWord.MISSING, words, f"look at {where} first", missing=missing)
    return _with_evidence(alike, verdict)


def _missing_text(missing: Sequence[MissingRank], place: NameHost) -> str:
    """Return "rank 1 on spark-b does not answer", for several ranks accordingly."""
    rank_texts = [f"{rank.rank} on {place(rank.host)}" for rank in missing[:_MOST_RANKS_NAMED]]
    more = [f"{len(missing) - _MOST_RANKS_NAMED} more"] if len(missing) > _MOST_RANKS_NAMED else []
    dead = ": its process is dead" if len(missing) == 1 and missing[0].dead else ""
    if len(missing) == 1:
        return f"rank {rank_texts[0]} does not answer{dead}"
    return f"ranks {names_in_words([*rank_texts, *more])} do not answer"


def _changing_verdict(answer: RanksAnswer, place: NameHost) -> RanksVerdict | None:
    """Return the verdict that a communicator starts or shuts down; None if none does."""
    for comm in _communicators(answer):
        for rank in comm.ranks:
            if rank.status is not RankStatus.RUNNING:
                rank_text = "a rank" if rank.rank is None else f"rank {rank.rank} on {place(rank.host)}"
                sentence = f"no verdict: {rank_text} is {rank.status.value}"
                return RanksVerdict(RanksWord.CHANGING, sentence, answers=1)
    return None


def _judge_frozen(answer: RanksAnswer, place: NameHost) -> RanksVerdict:
    """Return the verdict on counts that stand still."""
    complete = [comm for comm in _communicators(answer) if not comm.missing]
    unequal = [gap for comm in complete for gap in _unequal_counts(comm)]
    if not unequal and answer.form != "json":
        sentence = (
            "no verdict from NCCL: counts are equal on all ranks; its text does not say whether they move"
        )
        return RanksVerdict(RanksWord.NO_VERDICT, sentence)
    if not unequal:
        sentence = "no verdict from NCCL: counts stand still and are equal on all ranks"
        hint = "operations in CUDA graphs are not counted; or all GPUs hang in a kernel"
        return RanksVerdict(RanksWord.NO_VERDICT, sentence, hint)
    name, least, leading_rank, behind, ahead = max(unequal, key=lambda gap: gap[4] - gap[3])  # the widest gap
    operation = "" if name == ALL_OPERATIONS else f"{name} "
    sentence = f"{_rank_text(least, place)} {_verb(least)} behind at {operation}{behind:,}, "
    sentence += f"{_rank_text(leading_rank, place)} {_verb(leading_rank)} at {ahead:,}"
    hint = "look at both machines, because neither is to blame by that alone"
    return RanksVerdict(RanksWord.DIVERGED, sentence, hint, least=least, most=leading_rank)


def _unequal_counts(comm: Communicator) -> Iterator[tuple[str, Rank, Rank, int, int]]:
    """Yield (operation, rank behind, rank ahead, their counts) for each operation with unequal counts.

    A communicator in which a rank has launched nothing at all is left out.
    """
    ranks = [rank for rank in comm.ranks if rank.counts]
    if any(not sum(rank.counts.values()) for rank in ranks):
        return
    for name in dict.fromkeys(name for rank in ranks for name in rank.counts):
        counting = [rank for rank in ranks if name in rank.counts]
        least = min(counting, key=lambda rank: (rank.counts[name], rank.many))
        leading_rank = max(counting, key=lambda rank: (rank.counts[name], -rank.many))
        if least.counts[name] != leading_rank.counts[name]:
            yield name, least, leading_rank, least.counts[name], leading_rank.counts[name]


def _rank_text(rank: Rank, place: NameHost) -> str:
    if rank.rank is None:
        return f"{rank.many} ranks" if rank.many > 1 else "a rank"
    return f"rank {rank.rank} on {place(rank.host)}"


def _verb(rank: Rank) -> str:
    return "are" if rank.many > 1 else "is"


def _communicators(answer: RanksAnswer) -> list[Communicator]:
    """Return the communicators of two or more ranks; one of a single rank means nothing."""
    return [comm for comm in answer.communicators if comm.size >= _LEAST_SIZE]


def _missing_ranks(answer: RanksAnswer) -> tuple[MissingRank, ...]:
    """Return the ranks that are missing in any communicator, by number, each machine and process once."""
    result = {
        (rank.host, rank.pid, rank.rank): rank for comm in _communicators(answer) for rank in comm.missing
    }
    return tuple(sorted(result.values(), key=lambda rank: (rank.rank, rank.host or "")))


def _counts(answer: RanksAnswer) -> _CallCounts:
    """Return all counts of the communicators of two or more ranks without missing ranks."""
    counts: dict[tuple[str, str | None, int | None, int, str], int] = {}
    for comm in _communicators(answer):
        if comm.missing:
            continue
        for index, rank in enumerate(comm.ranks):
            unnamed = index if rank.rank is None else 0  # tells ranks without a number apart
            for name, count in rank.counts.items():
                counts[comm.hash, comm.secondary_hash, rank.rank, unnamed, name] = count
    return counts


def _newest_alike(answers: Sequence[_Answered], mark: Callable[[_Answered], object]) -> list[_Answered]:
    """Return the answers at the end of `answers` that have the same mark as the last one."""
    alike: list[_Answered] = []
    for answer in reversed(answers):
        if alike and mark(answer) != mark(alike[0]):
            break
        alike.insert(0, answer)
    return alike


def _is_enough(answers: Sequence[_Answered]) -> bool:
    return len(answers) >= LEAST_ANSWERS and _span_s(answers) >= LEAST_SPAN_S - _SLACK_S


def _span_s(answers: Sequence[_Answered]) -> float:
    """Return the seconds between the first and the last answer; 0 without answers."""
    times = [at for at, _ in answers]
    return times[-1] - times[0] if times else 0.0


def _asking_verdict(answers: Sequence[_Answered]) -> RanksVerdict:
    needed = f"a verdict needs {LEAST_ANSWERS} that do not change over {LEAST_SPAN_S:.0f} s"
    sentence = f"{count_words(len(answers), 'answer')} so far: {needed}"
    return _with_evidence(answers, RanksVerdict(RanksWord.ASKING, sentence))


def _with_evidence(answers: Sequence[_Answered], verdict: RanksVerdict) -> RanksVerdict:
    return replace(verdict, answers=len(answers), span_s=_span_s(answers))
