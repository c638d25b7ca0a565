"""Commands and messages come out of their lines as they went in."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.model.conversation import CallStart, ConversationCall
from sparktop.model.load import (
    EndReason,
    FirstToken,
    RequestEnded,
    RequestStarted,
    ResponseStarted,
    RunEnded,
    RunStarted,
    Tokens,
    TokenSource,
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
from sparktop.sweep.plan.plan import Api, Timeouts
from sparktop.sweep.run.worker_process import RunRecord
from sparktop.sweep.terms.request_errors import request_failure

TARGET = WorkerTarget("http://a:1", 'm"\x1b\n', Api.COMPLETIONS, "key", router=True)
FAILURE = request_failure("http:500", "no", 1.25, 500)

TIMES = st.floats(0, 1e7, allow_nan=False)
READS = st.lists(st.tuples(TIMES, st.integers(1, 9)), min_size=1, max_size=20)
ENDS = st.builds(
    RequestEnded,
    st.just("q"),
    TIMES,
    st.sampled_from([EndReason.STOP, EndReason.ABORT]),
    st.none(),
    st.none() | st.integers(0),
    st.none() | st.integers(0),
    st.none() | st.integers(0),
    st.none() | st.sampled_from(TokenSource),
    st.none() | st.text(max_size=5),
)


@given(READS, st.integers(0, 20), ENDS, TIMES)
@settings(max_examples=40, deadline=None)
def test_a_run_survives_its_lines_exactly(
    reads: list[tuple[float, int]], answer_from: int, end: RequestEnded, at: float
) -> None:
    """Events and token times come back to the last bit, every token before the end of its request."""
    first = FirstToken("q", reads[0][0], reads[0][1], answer_from > 0)
    events = (
        RunStarted(at, 3),
        RequestStarted("q", at, 3, 9),
        RequestStarted(
            "a", at, call=ConversationCall(1, 2, 3, 4, CallStart.TOOL, CallStart.HUMAN, 5, 6, compacted=True)
        ),
        ResponseStarted("q", at),
        first,
        end,
        RunEnded(at, 3),
    )
    tokens = RequestTokens([when for when, _ in reads], [count for _, count in reads], answer_from)
    record = RunRecord("r")
    for message in (
        Batch("r", at, 1, events, (TokenBin(0.1, None, 2), TokenBin(0.1, "a", 3), TokenBin(0.1, "a", 1))),
        TokenTimes("r", {"q": tokens}),
        Batch("other", at, 5, (RunStarted(at, 0),), ()),
    ):
        record.add(decode_message(encode_line(message)))
    later = [
        Tokens("q", when, count, index < answer_from) for index, (when, count) in enumerate(reads) if index
    ]
    assert record.events() == [*events[:-2], *later, end, events[-1]]
    assert record.bins == {(0.1, None): 2, (0.1, "a"): 4}
    assert record.in_flight == 1


def test_a_failure_keeps_its_word() -> None:
    """The failure of a request comes back with kind, word and status."""
    batch = Batch("r", 1.0, 0, (RequestEnded("q", 1.0, EndReason.ERROR, FAILURE),), ())
    assert decode_message(encode_line(batch)) == batch


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
    assert b'"key"' in encode_line(Calibrate("c", TARGET, 128, 64, 7, Timeouts(1.0, 2.0, 3.0, 4.0)))
    assert "key" not in repr(TARGET).replace("api_key", "")
