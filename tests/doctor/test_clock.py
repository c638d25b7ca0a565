"""The clock of a server, from its Date header."""

from __future__ import annotations

from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktop.doctor.check import Status
from sparktop.doctor.servers import check_clock, clock_skew_s
from sparktop.net.once import Reply

NOW = 1_768_467_600.4


def at(skew_s: float, took_s: float = 0.02) -> Reply:
    """Return the response of a server whose clock is ahead by `skew_s`."""
    date = formatdate(NOW + took_s / 2 + skew_s, usegmt=True)
    return Reply(200, date=date, asked_at=NOW, answered_at=NOW + took_s)


@given(st.floats(-1.4, 1.4))
def test_small_skews_are_fine(skew_s: float) -> None:
    """A skew below the resolution of the header, a second, is never a warning."""
    assert check_clock("b", at(skew_s)).status is Status.OK


@given(st.floats(3.0, 1e6), st.booleans())
def test_large_skews_are_told(size_s: float, ahead: bool) -> None:  # noqa: FBT001 - given by hypothesis
    """A skew above the limit is a warning that states its direction."""
    reply = at(size_s if ahead else -size_s)
    check = check_clock("b", reply)
    assert check.status is Status.WARN
    assert ("ahead of" if ahead else "behind") in check.message
    skew_s = clock_skew_s(reply)
    assert skew_s is not None
    assert abs(abs(skew_s) - size_s) <= 1.0


def test_a_slow_answer_is_no_skew() -> None:
    """Half of the duration of the request is not counted as skew."""
    reply = Reply(200, date=formatdate(NOW, usegmt=True), asked_at=NOW, answered_at=NOW + 4)
    assert check_clock("b", reply).status is Status.OK


@pytest.mark.parametrize(
    "date",
    [
        None,
        "",
        "yesterday",
        "\x00",
        "Thu, 99 Foo 2026 99:99:99 GMT",
        "Mon, 01 Jan 9999999 00:00:00 GMT",
        "1" * 9999,
    ],
)
def test_a_date_that_cannot_be_read_is_skipped(date: str | None) -> None:
    """Without a valid date the check is skipped."""
    check = check_clock("b", Reply(200, date=date, asked_at=NOW, answered_at=NOW))
    assert check.status is Status.SKIP


def test_a_far_future_has_a_bounded_figure() -> None:
    """The skew to the year 9999 is shown in a few characters."""
    reply = Reply(200, date="Fri, 31 Dec 9999 23:59:59 GMT", asked_at=NOW, answered_at=NOW)
    assert check_clock("b", reply).message == ">9999 d ahead of ours"
