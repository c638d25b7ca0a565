"""Commands and messages come out of their lines as they went in."""

from __future__ import annotations

import pytest

from sparktop.model.load import (
    CallStart,
    ConversationCall,
    EndReason,
    FirstToken,
    RequestEnded,
    RequestStarted,
    Tokens,
)
from sparktop.sweep.generator.wire import (
    Batch,
    Calibrate,
    RequestTokens,
    TokenBin,
    TokenTimes,
    WorkerProtocolError,
    WorkerTarget,
    decode_command,
    decode_message,
    encode_line,
)
from sparktop.sweep.plan.plan import Api
from sparktop.sweep.run.worker_process import RunRecord
from sparktop.sweep.terms.request_errors import request_failure


def test_a_run_survives_its_lines_exactly() -> None:
    """Events, failures and token times come back to the last bit, every token before its request's end."""
    call = ConversationCall(1, 2, 3, 4, CallStart.TOOL, CallStart.HUMAN, 5, 6, compacted=True)
    failed = RequestEnded("a", 0.2, EndReason.ERROR, request_failure("http:500", "no", 1.25, 500))
    end = RequestEnded("q", 0.1 + 0.2, EndReason.STOP, generated_tokens=5)
    events = (RequestStarted("a", 0.1, call=call), FirstToken("q", 0.15, 1, reasoning=True), failed, end)
    batch = Batch("r", 0.3, 1, events, (TokenBin(0.1, None, 2), TokenBin(0.1, "a", 3)))
    tokens = RequestTokens([0.15, 1 / 3], [1, 4], answer_from=1)
    record = RunRecord("r")
    for message in (batch, TokenTimes("r", "q", tokens), Batch("other", 0.4, 5, (failed,), ())):
        received = decode_message(encode_line(message))
        assert received == message
        record.add(received)
    assert record.events() == [*events[:1], failed, events[1], Tokens("q", 1 / 3, 4), end]


@pytest.mark.parametrize(
    "line",
    [b"", b"{}", b"[]", b"3", b"{", b'{"is":"nonsense"}', b'{"is":"runload"}', b'{"is":"batch","id":3}'],
)
def test_lines_that_do_not_fit_are_refused(line: bytes) -> None:
    """An invalid line is an error, on whichever side it is read."""
    with pytest.raises(WorkerProtocolError):
        decode_command(line)
    with pytest.raises(WorkerProtocolError):
        decode_message(line)


def test_a_key_stands_in_no_repr() -> None:
    """A target's key is sent, and printed nowhere."""
    target = WorkerTarget("http://a:1", 'm"\x1b\n', Api.COMPLETIONS, "key", router=True)
    assert b'"key"' in encode_line(Calibrate("c", target, 128, 64))
    assert "key" not in repr(target).replace("api_key", "")
