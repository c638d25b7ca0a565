"""Each format of recorded traffic is recognised and read with its own units."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparktop.sweep.plan.traces import (
    LONGEST_PAUSE_S,
    FaultError,
    Trace,
    TraceChoice,
    TracedRequest,
    TraceFormat,
    recognise,
)

DATA = Path(__file__).parents[3] / "data" / "traffic"
FILES = {path.stem: path for path in sorted(DATA.iterdir()) if "-" not in path.stem}


def read(name: str) -> list[TracedRequest]:
    return list(Trace(TraceChoice(str(FILES[name]))))


@pytest.mark.parametrize("name", FILES)
def test_the_format_is_recognised_from_the_first_line(name: str) -> None:
    """A file of each format is read as that format, without an option."""
    trace = Trace(TraceChoice(str(FILES[name])))
    assert list(trace)
    assert trace.form == TraceFormat(name)


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


def test_failures_are_skipped_and_counted(tmp_path: Path) -> None:
    """A request without output tokens failed when it was recorded."""
    path = tmp_path / "azure.csv"
    path.write_text(FILES["azure"].read_text() + "2023-11-16 19:02:14.12,1087,0\n")
    trace = Trace(TraceChoice(str(path)))
    assert [one.number for one in trace] == [0, 1, 2]
    assert trace.skipped == 1


def test_conversations_without_times_follow_their_own_clock() -> None:
    """Pauses from turn to turn are five minutes at most; a conversation begins every 30 s."""
    trace = Trace(TraceChoice(str(DATA / "aiperf-sessions.jsonl")))
    found = list(trace)
    assert [(one.due_s, one.after) for one in found] == [
        (0.0, None),
        (None, 0),
        (None, 1),
        (30.0, None),
        (None, 3),
    ]
    assert [one.delay_s for one in found] == pytest.approx([0.0, 0.8, 2.0, 0.0, LONGEST_PAUSE_S])
    assert (trace.conversations, trace.shortened) == (2, 1)


@pytest.mark.parametrize(
    ("line", "form"),
    [
        ("2023-11-16 19:02:11.1200000,1312,44", TraceFormat.AZURE),
        ("2024-05-10 00:00:00.009930+00:00,2162,5", TraceFormat.AZURE),
    ],
)
def test_csv_without_a_header_is_recognised(line: str, form: TraceFormat, tmp_path: Path) -> None:
    """Rows cut out of the middle of a file are read, too."""
    assert recognise(line) is form
    path = tmp_path / "part.csv"
    path.write_text(f"{line}\n")
    assert len(list(Trace(TraceChoice(str(path))))) == 1


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


@pytest.mark.parametrize("line", ["", "a,b", "hello", "[]", '{"a": 1}', '"x', "1,2", "{", "{}"])
def test_an_unknown_line_is_refused(line: str) -> None:
    """What belongs to no format is a fault with the list of formats or a reason."""
    with pytest.raises(FaultError):
        recognise(line)
