"""Commands and messages come out of their lines as they went in."""

from __future__ import annotations

import msgspec
import pytest

from sparktop.sweep.generator.wire import (
    COMMANDS,
    MESSAGES,
    Calibrate,
    WorkerTarget,
    encode_line,
)
from sparktop.sweep.plan.plan import Api


def test_a_key_stands_in_no_repr() -> None:
    """A target's key is sent, and printed nowhere."""
    target = WorkerTarget("http://a:1", 'm"\x1b\n', Api.COMPLETIONS, "key", router=True)
    assert b'"key"' in encode_line(Calibrate("c", target, 128, 64))
    assert "key" not in repr(target).replace("api_key", "")


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b"[]",
        b"3",
        b"{",
        b'{"type":"Nonsense"}',
        b'{"type":"RunLoad"}',
        b'{"type":"Batch","id":3}',
    ],
)
def test_lines_that_do_not_fit_are_refused(line: bytes) -> None:
    """An invalid line is an error, on whichever side it is read."""
    with pytest.raises(msgspec.MsgspecError):
        COMMANDS.decode(line)
    with pytest.raises(msgspec.MsgspecError):
        MESSAGES.decode(line)
