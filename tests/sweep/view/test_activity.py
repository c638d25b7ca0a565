"""What agents do, from the events of their requests."""

from __future__ import annotations

from sparktop.model.conversation import CallStart, ConversationCall
from sparktop.model.load import (
    EndReason,
    FirstToken,
    LoadKind,
    LoadPoint,
    RequestEnded,
    RequestStarted,
)
from sparktop.model.sweep import LevelKey
from sparktop.sweep.view.series import ActivityLedger


def key_of(number: int, kind: LoadKind = LoadKind.AGENTS) -> LevelKey:
    """Return the key of a level of `number` agents."""
    return LevelKey("a", LoadPoint(kind, number))


def started(lane: int, at: float, then: CallStart | None = CallStart.TOOL) -> RequestStarted:
    """Return the start of a call of the agent `lane`, named after it."""
    call = ConversationCall(lane, 0, 0, 0, CallStart.HUMAN, then, 0, 10)
    return RequestStarted(str(lane), at, call=call)


def test_a_call_is_computed_decoded_and_followed_by_its_tool() -> None:
    """A second of prefill, two of decode, then a tool; another agent thinks all the time."""
    ledger = ActivityLedger()
    ledger.begin_level(10.0, key_of(2))
    ledger.take(started(0, 11.0))
    ledger.take(FirstToken("0", 12.0))
    ledger.take(RequestEnded("0", 14.0, EndReason.LENGTH))
    found = ledger.activities(15.0)
    assert found is not None
    assert found.each == ("hhhh" + "pppp" + "dddddddd" + "tttt", "h" * 20)
    assert found.counts[5] == (0, 1, 0, 0, 1)
    assert not found.queue_known


def test_the_newest_requests_wait() -> None:
    """The servers report one waiting request: it is the one that was sent last."""
    ledger = ActivityLedger()
    ledger.begin_level(0.0, key_of(3))
    for lane in range(3):
        ledger.take(started(lane, 0.1 * lane))
    ledger.look(1.0)
    found = ledger.activities(1.0)
    assert found is not None
    assert [text[-1] for text in found.each] == ["p", "p", "w"]
