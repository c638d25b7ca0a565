"""The verdict on ranks, from the documented examples as JSON and text, and cases without a verdict."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from msgspec import structs

from sparktop.analysis.ranks import judge_ranks
from sparktop.model.ranks import MissingRank, RanksAnswer, RanksReading, RankStatus, RanksVerdict, RanksWord
from tests.hardware.ras.examples import answer
from tests.known import known

NAMES = {"192.168.100.11": "spark-a", "192.168.100.12": "spark-b"}
EVERY_S = 5.0


def place(host: str | None) -> str:
    return NAMES.get(host or "", host or "?")


def judged(answers: Iterable[RanksAnswer | str], still_since: float | None = 0.0) -> RanksVerdict:
    """Judge readings at equal intervals; a text instead of an answer is the reason of a failed query."""
    readings = [
        RanksReading(number * EVERY_S, "spark-a", None, one)
        if isinstance(one, str)
        else RanksReading(number * EVERY_S, "spark-a", one)
        for number, one in enumerate(answers)
    ]
    return judge_ranks(readings, still_since, place)


def absent(found: RanksAnswer) -> RanksAnswer:
    """Return an answer in which rank 1 of the last communicator starts or shuts down."""
    *others, last = found.communicators
    ranks = (last.ranks[0], structs.replace(last.ranks[1], status=RankStatus.ABSENT))
    return structs.replace(found, communicators=(*others, structs.replace(last, ranks=ranks)))


@pytest.mark.parametrize(
    ("answers", "word", "said"),
    [
        ([answer("in-flight-1"), answer("in-flight-2")], RanksWord.MOVING, ""),
        ([answer("healthy")] * 3, RanksWord.NO_VERDICT, "NCCL"),
        ([answer("lags-by-one"), answer("second-job")] * 3, RanksWord.NO_VERDICT, "2 jobs"),
        ([absent(answer("lags-by-one"))] * 4, RanksWord.CHANGING, ""),
    ],
    ids=["counts differ and move", "counts are equal", "two jobs stand still", "a rank starts or shuts down"],
)
def test_what_proves_no_hang(answers: list[RanksAnswer], word: RanksWord, said: str) -> None:
    """Neither counts that move, nor equal ones, nor a job that may be another one, nor a rank that starts."""
    found = judged(answers)
    assert (found.word, found.apart) == (word, None)
    assert said in found.sentence


def test_3_counts_that_differ_and_stand_still_are_diverged_ranks() -> None:
    """Counts that differ and do not increase are diverged ranks."""
    found = judged([answer("lags-by-one")] * 3)
    assert found.word is RanksWord.DIVERGED
    assert found.sentence == "rank 1 on spark-b is behind at AllReduce 27,910, rank 0 on spark-a is at 27,911"
    assert (found.answers, found.span_s) == (3, 10.0)
    assert (known(found.least).rank, known(found.most).rank) == (1, 0)
    assert found.apart == found.sentence


def test_5_a_dead_rank_is_named_with_its_machine() -> None:
    """A dead rank is named with its machine."""
    found = judged([answer("dead")] * 3)
    assert found.word is RanksWord.MISSING
    assert found.sentence == "rank 1 on spark-b does not answer: its process is dead"
    assert found.hint == "look at spark-b first"
    assert found.missing == (MissingRank(1, "192.168.100.12", 298, 0, dead=True),)


def test_6_the_job_that_moves_is_not_the_job_of_a_server_that_stands_still() -> None:
    """Of two jobs, the one that progresses does not belong to the server that stands still."""
    other = answer("second-job")
    turns = [answer("lags-by-one"), other, answer("lags-by-one"), moved(other, 4500), answer("lags-by-one")]
    assert judged(turns).word is RanksWord.DIVERGED


def test_an_answer_of_an_earlier_standstill_proves_no_movement() -> None:
    """Counts that differ from those before the standstill do not say that it moves."""
    answers = [answer("in-flight-1"), answer("in-flight-2")]
    assert judged(answers, still_since=EVERY_S / 2).word is RanksWord.ASKING
    assert judged(answers, still_since=None).word is RanksWord.MOVING


def moved(found: RanksAnswer, count: int) -> RanksAnswer:
    """Return an answer whose last communicator has launched `count` AllReduces on all ranks."""
    *others, last = found.communicators
    ranks = tuple(structs.replace(rank, counts={**rank.counts, "AllReduce": count}) for rank in last.ranks)
    return structs.replace(found, communicators=(*others, structs.replace(last, ranks=ranks)))


@pytest.mark.parametrize("count", [1, 2])
def test_nothing_is_judged_on_fewer_than_three_answers(count: int) -> None:
    """Nothing is judged on fewer than three answers."""
    for name in ("lags-by-one", "dead", "healthy"):
        assert judged([answer(name)] * count).word is RanksWord.ASKING


def test_a_failed_query_clears_the_streak() -> None:
    """A failed query clears the streak."""
    lags = answer("lags-by-one")
    assert judged([lags, lags, "no answer", lags]).word is RanksWord.ASKING
    assert judged([lags, lags, "no answer", lags, lags, lags]).word is RanksWord.DIVERGED
    assert judged([lags, lags, lags, "no answer"]).word is RanksWord.FAILED
