"""Parts, speeds and faults of traces: each fault is one line that names file and line number.

Each format of recorded traffic is recognised and read with its own units.

Recorded traffic as the level of a sweep: its point, its lengths, and the part that is replayed.

The summary of a trace states what its replay will send.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparktop.errors import UsageError
from sparktop.model.load import LoadKind, LoadMode, LoadPoint
from sparktop.model.targets import SweepSpec
from sparktop.sweep.plan import traces
from sparktop.sweep.plan.plan import SweepTarget
from sparktop.sweep.plan.presets import find_preset, make_plan
from sparktop.sweep.plan.traces import (
    LONGEST_PAUSE_S,
    FaultError,
    Trace,
    TraceChoice,
    TracedRequest,
    TraceError,
    TraceFormat,
    TraceReplay,
    parse_range,
    read_replay,
    recognise,
)

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


FAULTS = {
    "not-json": ('{"timestamp": 0, "input_length": 10', "not JSON"),
    "steps back": (MOONCAKE % -2000, "the clock steps back by 3 s"),
    "no field": ('{"timestamp": 3000, "input_length": 10}', "missing required field `output_length`"),
    "minus": (
        '{"timestamp": 9000, "input_length": -1, "output_length": 1}',
        ">= 0 - at `$.input_length`",
    ),
    "ids": (
        '{"timestamp": 9000, "input_length": 1, "output_length": 1, "hash_ids": ["a"]}',
        "Expected `int`, got `str` - at `$.hash_ids[0]`",
    ),
    "two prompts": (
        '{"timestamp": 9000, "input_length": 1, "output_length": 1, "text_input": "a"}',
        "exactly one of input_length, text_input is needed, not 2",
    ),
    "payload": ('{"timestamp": 9000, "payload": {}, "output_length": 1}', "'payload' is not supported"),
    "nul": ("\0\0", "NUL bytes: not a text file"),
    "deep part": ('{"payload": ' + "[" * 100_000, "not JSON"),
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
        ("TIMESTAMP,ContextTokens,GeneratedTokens", "x,1,1", "is not a date and time"),
        (
            "TIMESTAMP,ContextTokens,GeneratedTokens",
            "2023-11-16 19:02:11,1_0,1",
            "must be a number of tokens",
        ),
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


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
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


FILES = {path.stem: path for path in sorted(DATA.iterdir()) if "-" not in path.stem}


def read(name: str) -> list[TracedRequest]:
    return list(Trace(TraceChoice(str(FILES[name]))))


def test_mooncake_times_are_milliseconds_and_blocks_have_512_tokens() -> None:
    """The first request is at 0, the last one at 5.4 s."""
    found = read("mooncake")
    assert [one.due_s for one in found] == [0.0, 0.9, 0.9, 2.7, 5.4]
    assert found[1] == TracedRequest(1, 0.9, 1900, 118, (0, 31, 32, 907), 512)


def test_turns_of_an_aiperf_session_wait_for_the_turn_before() -> None:
    """A turn without a time is due its delay after the end of the turn before, and continues its text."""
    found = read("aiperf")
    assert [(one.due_s, one.after, one.delay_s) for one in found] == [
        (0.0, None, 0.0),
        (0.5, None, 0.0),
        (None, 0, 1.84),
        (None, 1, 2.5),
        (4.0, None, 0.0),
    ]
    assert [one.prompt_tokens for one in found] == [912, 300, 1330, 400, None]
    assert found[1].scope == found[3].scope != ""
    assert found[4].text == "How long is the coast of Norway?"


def test_azure_times_are_dates() -> None:
    """Dates of seven decimals count from the first one."""
    found = read("azure")
    assert [one.due_s for one in found] == [0.0, 0.5, 2.0]
    assert [(one.prompt_tokens, one.output_tokens) for one in found] == [(1312, 44), (374, 109), (4808, 10)]


def test_conversations_without_times_follow_their_own_clock() -> None:
    """Pauses from turn to turn are five minutes at most; a conversation begins every 30 s."""
    found = list(Trace(TraceChoice(str(DATA / "aiperf-sessions.jsonl"))))
    assert [(one.due_s, one.after) for one in found] == [
        (0.0, None),
        (None, 0),
        (None, 1),
        (30.0, None),
        (None, 3),
    ]
    assert [one.delay_s for one in found] == pytest.approx([0.0, 0.8, 2.0, 0.0, LONGEST_PAUSE_S])
    # They last at least as long as their pauses: the second begins 30 s later and pauses for 300 s.
    summed = replay("aiperf-sessions.jsonl")
    assert (summed.conversations, summed.shortened, summed.waits) == (2, 1, True)
    assert summed.duration_s == pytest.approx(330.0)
    # Answers that others wait for are waited for longer.
    assert summed.tail_s > summed.duration_s


@pytest.mark.parametrize(
    "line",
    [
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type",
        "5,ChatGPT,472,18,490,Conversation log",
        '{"chat_id": 1, "timestamp": 0.1, "input_length": 9, "output_length": 2, "hash_ids": [0]}',
        '{"id": "0ab1", "requests": []}',
    ],
)
def test_other_public_traces_are_not_read_in_wrong_units(line: str) -> None:
    """Lines of BurstGPT, Qwen-Bailian and Weka are refused with the formats that are read."""
    with pytest.raises(FaultError, match="none of the known formats: mooncake, aiperf, azure"):
        recognise(line)


def replay(name: str, speed: float = 1.0, to_s: float | None = None) -> TraceReplay:
    choice = TraceChoice(str(DATA / name), speed=speed, to_s=to_s)
    return read_replay(choice)


def test_the_level_is_the_mean_rate_of_the_trace() -> None:
    """Five requests in 5.4 s; at twice the speed the rate is twice as high. Lengths are means."""
    spec = find_preset("quick") | SweepSpec(trace=str(DATA / "mooncake.jsonl"))
    plan = make_plan(spec, (SweepTarget("a", "http://x"),))
    assert plan.axis == (LoadPoint(LoadKind.RATE, 0.741, trace="mooncake.jsonl"),)
    assert plan.axis[0].label == "0.741 /s of mooncake.jsonl"
    assert (plan.mode, plan.kind, plan.runs, plan.climb_to) == (LoadMode.OPEN, LoadKind.RATE, 1, None)
    assert (plan.lengths, plan.tg, plan.concurrency) == ((1320,), 61, ())
    assert plan.duration_s == pytest.approx(5.4 * 5 / 4)
    assert replay("mooncake.jsonl", speed=2.0).point.value == pytest.approx(1.48)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("600..1200", (600.0, 1200.0)),
        ("10m..1h", (600.0, 3600.0)),
        ("..90", (0.0, 90.0)),
        ("1h..", (3600.0, None)),
        (" 5s .. 1d ", (5.0, 86400.0)),
    ],
)
def test_parts_are_seconds_minutes_hours(text: str, part: tuple[float, float]) -> None:
    """Either end may be left out."""
    assert parse_range(text) == part


@pytest.mark.parametrize("text", ["", "5", "5..5", "9..1", "a..b", "-1..5", "1..nan", "1..inf", "1..2..3"])
def test_what_is_no_part_is_refused(text: str) -> None:
    """One line says what is wrong."""
    with pytest.raises(UsageError) as error:
        parse_range(text)
    assert "\n" not in str(error.value)
