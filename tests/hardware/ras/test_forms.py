"""Answers of NCCL: documented examples and invalid answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktop.hardware.ras import RanksError, parse_json
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


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_half_an_answer_is_none(share: float) -> None:
    """An incomplete answer is refused."""
    text = example("dead")
    with pytest.raises(RanksError):
        parse_json(text[: int(share * len(text))])


@given(st.text(max_size=300))
def test_garbage_is_refused_in_one_clean_line(text: str) -> None:
    """Garbage is refused with one clean line."""
    with pytest.raises(RanksError) as raised:
        parse_json(text)
    assert str(raised.value).isprintable()


@given(st.integers(0, 4000), st.binary(max_size=12))
def test_damaged_answers_never_raise_anything_else(at: int, noise: bytes) -> None:
    """A damaged answer is parsed or refused, without another error."""
    whole = example("dead")
    try:
        found = parse_json(whole[:at] + noise.decode("latin-1") + whole[at + len(noise) :])
    except RanksError:
        return
    assert len(found.communicators) <= 1024
