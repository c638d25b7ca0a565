"""`sparktop sweep --trace`: its options, and what is refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparktop.cli import main

TRACE = str(Path(__file__).parents[1] / "data" / "traffic" / "mooncake.jsonl")
pytestmark = pytest.mark.outside


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--trace", TRACE, "--rate", "2"], "give --rate or --trace, not both"),
        (["--trace", TRACE, "--pp", "64"], "has its own lengths: leave out --pp"),
        (["--trace", TRACE, "--slo", "ttft_p90_ms=9", "127.0.0.1:1"], "leave out --trace"),
        (["--trace", TRACE, "--trace-range", "9..5"], "--trace-range: '9..5' is empty"),
        (["--trace", TRACE, "--trace-range", "1000..2000"], "no request in the chosen part"),
        (["--trace", TRACE, "--trace-format", "azure"], "mooncake.jsonl, line 1: no column"),
        (["--trace-speed", "2"], "--trace-speed goes with --trace"),
        (["--trace", "/nowhere/x.jsonl"], "/nowhere/x.jsonl: cannot be read: No such file"),
    ],
)
def test_what_cannot_be_replayed_is_exit_2(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unusable trace is reported in one line with exit code 2; nothing is sent."""
    monkeypatch.delenv("SPARKTOP_CONFIG", raising=False)
    assert main(["sweep", *words]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.err.count("\n") == 1
    assert printed.out == ""


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x00\x01\x02", "line 1: NUL bytes"),
        (b'{"timestamp": 5, "input_length": 9}\n', "line 1: no field 'output_length'"),
        (
            b"".join(b'{"timestamp": %d, "input_length": 9, "output_length": 1}\n' % at for at in (9, 5)),
            "line 2: the clock steps back by 0.004 s",
        ),
    ],
)
def test_a_file_that_is_no_trace_is_named_with_its_line(
    data: bytes, message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The message about an invalid trace has file, line and fault."""
    path = tmp_path / "day.jsonl"
    path.write_bytes(data)
    assert main(["sweep", "--trace", str(path)]) == 2
    printed = capsys.readouterr()
    assert f"{path}" in printed.err
    assert message in printed.err
    assert printed.err.count("\n") == 1
