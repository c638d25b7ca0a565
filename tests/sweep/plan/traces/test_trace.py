"""Parts, speeds and faults of traces: each fault is one line that names file and line number."""

from __future__ import annotations

import os
import re
import tracemalloc
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparktop.sweep.plan import traces
from sparktop.sweep.plan.traces import Trace, TraceChoice, TracedRequest, TraceError, TraceFormat

DATA = Path(__file__).parents[3] / "data" / "traffic"
MOONCAKE = '{"timestamp": %d, "input_length": 10, "output_length": 5}'


def times(path: Path, **part: float) -> list[float | None]:
    return [one.due_s for one in Trace(TraceChoice(str(path), **part))]  # type: ignore[arg-type]  # floats


def mooncake(folder: Path, *times_ms: int) -> Path:
    path = folder / "t.jsonl"
    path.write_text("".join(f"{MOONCAKE % one}\n" for one in times_ms))
    return path


def test_a_part_begins_at_its_own_zero(tmp_path: Path) -> None:
    """Times count from the first request of the file; those of the replay from the begin of the part."""
    path = mooncake(tmp_path, 5000, 6000, 7000, 9000, 9500)
    assert times(path) == [0.0, 1.0, 2.0, 4.0, 4.5]
    assert times(path, from_s=1.5, to_s=4.5) == [0.5, 2.5]
    assert times(path, from_s=1.5, to_s=4.5, speed=2.0) == [0.25, 1.25]


def test_a_part_ends_before_later_lines_are_read(tmp_path: Path) -> None:
    """A fault after the end of the part does not matter, so the rest of a long file is not read."""
    path = mooncake(tmp_path, 0, 1000, 2000)
    path.write_text(f"{path.read_text()}not JSON\n")
    assert times(path, to_s=1.5) == [0.0, 1.0]


def test_a_conversation_that_begins_before_the_part_is_left_out() -> None:
    """Turns that wait for a request outside the part are not part of it either."""
    found = list(Trace(TraceChoice(str(DATA / "aiperf-sessions.jsonl"), from_s=10.0)))
    assert [(one.due_s, one.after, one.prompt_tokens) for one in found] == [(20.0, None, 128), (None, 0, 192)]


def test_speed_shortens_pauses_too() -> None:
    """At twice the speed the pause after a turn is half as long."""
    found = list(Trace(TraceChoice(str(DATA / "aiperf.jsonl"), speed=2.0)))
    assert [one.delay_s for one in found] == [0.0, 0.0, 0.92, 1.25, 0.0]


FAULTS = {
    "not-json": ('{"timestamp": 0, "input_length": 10', "not JSON"),
    "list": ("[1]", "not a JSON object"),
    "steps back": (MOONCAKE % -2000, "the clock steps back by 3 s"),
    "no field": ('{"timestamp": 3000, "input_length": 10}', "no field 'output_length'"),
    "text": ('{"timestamp": "x", "input_length": 1, "output_length": 1}', "'timestamp' must be a time"),
    "minus": ('{"timestamp": 9000, "input_length": -1, "output_length": 1}', "must be a number of tokens"),
    "ids": (
        '{"timestamp": 9000, "input_length": 1, "output_length": 1, "hash_ids": ["a"]}',
        "'hash_ids' must be a list of integers",
    ),
    "two prompts": (
        '{"timestamp": 9000, "input_length": 1, "output_length": 1, "text_input": "a"}',
        "exactly one of input_length, text_input is needed, not 2",
    ),
    "payload": ('{"timestamp": 9000, "payload": {}, "output_length": 1}', "'payload' is not supported"),
    "nul": ("\0\0", "NUL bytes: not a text file"),
    "deep": ("[" * 100_000, "not JSON"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_one_line_with_file_and_line_number(name: str, tmp_path: Path) -> None:
    """The third line (after a blank one) is at fault; the first requests are read before."""
    line, words = FAULTS[name]
    path = mooncake(tmp_path, 0, 1000)
    path.write_text(f"{path.read_text()}\n{line}\n")
    with pytest.raises(TraceError, match=re.escape(words)) as caught:
        times(path)
    assert str(caught.value).startswith(f"{path}, line 4: ")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("header", "row", "words"),
    [
        ("TIMESTAMP,ContextTokens,Generated", "", "no column 'GeneratedTokens'"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens", "2023-11-16 19:02:11,5", "only 2 columns"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens", "2023-99-16 19:02:11,5,5", "is not a date and time"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens", "x,1,1", "is not a date and time"),
        (
            "TIMESTAMP,ContextTokens,GeneratedTokens",
            "2023-11-16 19:02:11,1_0,1",
            "must be a number of tokens",
        ),
        ("TIMESTAMP,ContextTokens,GeneratedTokens", '1,"1', "not a row of a CSV file"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens", "", "no request, only a header"),
        ("2023-11-16 19:02:11,5,0", "", "failed when they were recorded"),
    ],
)
def test_csv_faults_name_the_column(header: str, row: str, words: str, tmp_path: Path) -> None:
    """Missing columns and values that are not numbers are named."""
    path = tmp_path / "t.csv"
    path.write_text(f"{header}\n{row}\n")
    with pytest.raises(TraceError, match=re.escape(words)):
        times(path)


def test_files_that_are_no_traces_are_refused(tmp_path: Path) -> None:
    """An empty file, a folder, a named pipe, a missing file and a binary file have a message each."""
    empty, binary, pipe = tmp_path / "empty", tmp_path / "binary", tmp_path / "pipe"
    empty.touch()
    binary.write_bytes(b"\x7fELF\xff\xfe\x80")
    os.mkfifo(pipe)
    for path, words in (
        (empty, "is empty"),
        (tmp_path, "is not a regular file|Is a directory"),
        (pipe, "is not a regular file"),
        (tmp_path / "none", "cannot be read: No such file"),
        (binary, "line 1: not UTF-8"),
        (Path("/dev/zero"), "is not a regular file"),
        ("a\0b", "cannot be read"),
    ):
        with pytest.raises(TraceError, match=words):
            times(Path(path))


def test_a_part_without_requests_says_how_long_the_file_is(tmp_path: Path) -> None:
    """The words help to choose another part."""
    path = mooncake(tmp_path, 0, 60_000)
    with pytest.raises(TraceError, match="no request in the chosen part: the last request is at 60 s"):
        times(path, from_s=100.0)


def test_a_long_line_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file without line ends is not read into memory."""
    monkeypatch.setattr(traces, "LONGEST_LINE", 1 << 20)
    path = tmp_path / "t"
    path.write_bytes(b"x" * ((1 << 20) + 1))
    with pytest.raises(TraceError, match="line 1: longer than 1 MiB"):
        times(path)


def test_too_many_requests_ask_for_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit the message names the option."""
    monkeypatch.setattr(traces, "MOST_REQUESTS", 3)
    path = mooncake(tmp_path, 0, 1, 2, 3)
    with pytest.raises(TraceError, match="more than 3 requests: choose a part with --trace-range"):
        times(path)


def test_a_file_is_streamed(tmp_path: Path) -> None:
    """The first requests of a large file take little memory."""
    path = tmp_path / "t.csv"
    row = "2023-11-16 19:02:11.1200000,1312,44\n"
    path.write_text(row * 60_000)  # 2.3 MB
    tracemalloc.start()
    try:
        trace = iter(Trace(TraceChoice(str(path))))
        assert len(list(islice(trace, 100))) == 100
        for _ in trace:
            pass
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_mutated_lines_end_in_one_clear_line(tmp_path: Path, data: st.DataObject) -> None:
    """Bytes deleted, replaced and inserted give requests or a `TraceError`, nothing else."""
    name = data.draw(st.sampled_from(list(TraceFormat)))
    source = next(DATA.glob(f"{name}.*")).read_bytes()
    begin = data.draw(st.integers(0, len(source)))
    end = min(len(source), begin + data.draw(st.integers(0, 20)))
    inserts = st.one_of(
        st.binary(max_size=8),
        st.sampled_from([b"-1", b"null", b"[]", b"{}", b"1e999", b'"', b"true", b",", b"\n", b"NaN", b"0"]),
    )
    path = tmp_path / "mutated"
    path.write_bytes(source[:begin] + data.draw(inserts) + source[end:])
    form = data.draw(st.sampled_from([None, TraceFormat(name)]))
    found, words = _read_or_fault(TraceChoice(str(path), form))
    assert "\n" not in words
    assert words == "" or words.startswith(str(path))
    assert [one.number for one in found] == list(range(len(found)))
    assert all(one.after is None or one.after < one.number for one in found)


def _read_or_fault(choice: TraceChoice) -> tuple[list[TracedRequest], str]:
    """Return (requests up to the first fault, words of the fault; "" without one)."""
    found = []
    try:
        for one in Trace(choice):
            found.append(one)  # noqa: PERF402 - those before the fault are kept
    except TraceError as error:
        return found, str(error)
    return found, ""
