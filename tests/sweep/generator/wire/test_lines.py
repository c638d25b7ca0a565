"""Commands and messages come out of their lines as they went in."""

from __future__ import annotations

from sparktop.sweep.generator.wire import (
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
