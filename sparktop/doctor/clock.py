"""Compares a server's clock with this machine's, by the Date header of a response."""

from __future__ import annotations

from email.utils import parsedate_to_datetime

from sparktop.doctor.check import Check, Status
from sparktop.graphics import numbers
from sparktop.net.once import Reply

WARN_ABOVE_S = 2.0
"""Seconds; a smaller difference is not significant: the header has whole seconds, and servers may renew it
only once a second."""
_HALF_SECOND = 0.5
_ADVICE = "set both clocks (timedatectl set-ntp true): times and uptimes of this server are off by that"


def clock_skew_s(reply: Reply) -> float | None:
    """Return by how many seconds (±1) the server's clock is ahead of this machine's.

    None if the response has no valid Date header. This header has whole seconds: half a second is added to
    it, and the result is compared with the time halfway between request and response.
    """
    if not reply.date:
        return None
    try:
        server_s = parsedate_to_datetime(reply.date[:64]).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError, OSError):
        return None
    return server_s + _HALF_SECOND - (reply.asked_at + reply.answered_at) / 2


def check_clock(name: str, reply: Reply) -> Check:
    """Return the check of the clock of the server `name`, from one of its responses."""
    title = f"{name} clock"
    skew_s = clock_skew_s(reply)
    if skew_s is None:
        return Check(title, Status.SKIP, "its answers have no Date that can be read")
    slack_s = (reply.answered_at - reply.asked_at) / 2
    if abs(skew_s) <= WARN_ABOVE_S + slack_s:
        return Check(title, Status.OK, f"within {WARN_ABOVE_S:g} s of ours")
    way = "ahead of" if skew_s > 0 else "behind"
    return Check(title, Status.WARN, f"{numbers.age(abs(skew_s))} {way} ours", _ADVICE)
