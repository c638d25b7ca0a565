"""Answers of NCCL as JSON and as text: documented examples and invalid answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktop.hardware.ras import RanksError, parse_json, parse_text
from sparktop.model.ranks import RanksAnswer, RankStatus
from tests.hardware.ras.examples import example

TP_HASH = "d1a8f06e2b947c35"
ALL_REDUCE = "AllReduce"


def counts(found: RanksAnswer) -> list[int]:
    tp = next(comm for comm in found.communicators if comm.hash == TP_HASH)
    return [rank.counts[ALL_REDUCE] for rank in sorted(tp.ranks, key=lambda rank: rank.rank or 0)]


def test_a_healthy_job_as_json() -> None:
    """The JSON of a healthy job has version, communicators, counts and ranks."""
    found = parse_json(example("healthy"))
    assert (found.nccl, found.form, found.timeouts, found.took_s) == ("2.30.7", "json", 0, 0.001)
    assert [comm.hash for comm in found.communicators] == ["01c9f2ab7d4e0531", "7be40d19c35a26f8", TP_HASH]
    assert counts(found) == [27911, 27911]
    rank = found.communicators[2].ranks[1]
    assert (rank.rank, rank.host, rank.pid, rank.device) == (1, "192.168.100.12", 298, 0)
    assert rank.status is RankStatus.RUNNING
    assert rank.error is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [("in-flight-1", [20480, 20477]), ("in-flight-2", [21150, 21152]), ("lags-by-one", [27911, 27910])],
)
def test_unequal_counts_are_the_same_in_both_forms(name: str, expected: list[int]) -> None:
    """Unequal counts are read equally from JSON and text."""
    assert counts(parse_json(example(name))) == expected
    text = parse_text(example(name, "txt"))
    assert counts(text) == expected
    assert text.unnamed == 2
    assert [(rank.host, rank.pid) for rank in sorted(text.communicators[0].ranks, key=str)] == [
        ("192.168.100.11", 312),
        ("192.168.100.12", 298),
    ]


def test_a_dead_rank_is_missing_in_both_forms() -> None:
    """A dead rank is missing in both forms."""
    for found in (parse_json(example("dead")), parse_text(example("dead", "txt"))):
        assert len(found.communicators) == 3
        for comm in found.communicators:
            assert comm.size == 2
            assert [(one.rank, one.host, one.pid, one.dead) for one in comm.missing] == [
                (1, "192.168.100.12", 298, True)
            ]


def test_ranks_that_are_counted_and_not_named() -> None:
    """Ranks that the text only counts are one entry with their number."""
    first = "Rank 0 has launched up to operation 27911 -- GPU 0 managed by process 312 on node 192.168.100.11"
    text = example("lags-by-one", "txt").replace(first, "7 ranks have launched up to operation 27911")
    ranks = parse_text(text).communicators[0].ranks
    assert [(rank.rank, rank.many, rank.counts[ALL_REDUCE]) for rank in ranks] == [
        (1, 1, 27910),
        (None, 7, 27911),
    ]


def test_a_rank_that_launched_nothing_and_one_that_shuts_down() -> None:
    """A rank without operations has the count 0, and one that aborts is stopping."""
    text = example("lags-by-one", "txt").replace(
        "launched up to operation 27910", "not launched any operations"
    )
    assert counts(parse_text(text)) == [27911, 0]
    where = "GPU 0 managed by process 298 on node 192.168.100.12"
    block = f"  Communicator ranks have different status\n  Rank 1 has status ABORT -- {where}\n"
    text = example("lags-by-one", "txt").replace("  Communicator ranks", f"{block}  Communicator ranks")
    status = {rank.rank: rank.status for rank in parse_text(text).communicators[0].ranks}
    assert status == {0: RankStatus.RUNNING, 1: RankStatus.STOPPING}


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_half_an_answer_is_none(share: float) -> None:
    """An incomplete answer is refused."""
    for form, parse in (("json", parse_json), ("txt", parse_text)):
        text = example("dead", form)
        with pytest.raises(RanksError):
            parse(text[: int(share * len(text))])


@given(st.text(max_size=300))
def test_garbage_is_refused_in_one_clean_line(text: str) -> None:
    """Garbage is refused with one clean line."""
    for parse in (parse_json, parse_text):
        with pytest.raises(RanksError) as raised:
            parse(text)
        assert str(raised.value).isprintable()


@given(st.integers(0, 4000), st.binary(max_size=12))
def test_damaged_answers_never_raise_anything_else(at: int, noise: bytes) -> None:
    """A damaged answer is parsed or refused, without another error."""
    for form, parse in (("json", parse_json), ("txt", parse_text)):
        whole = example("dead", form)
        text = whole[:at] + noise.decode("latin-1") + whole[at + len(noise) :]
        try:
            found = parse(text)
        except RanksError:
            continue
        assert len(found.communicators) <= 1024
