"""The result file of a sweep: what it holds, how it is written, read and kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktop.errors import UsageError
from sparktop.sweep.result import store as result_store
from sparktop.sweep.result.results import SweepResult
from sparktop.sweep.result.store import read_value
from tests.sweep.made_results import BEGAN, made_level, made_sweep
from tests.sweep.odd_json import change

CONTRACT = {
    "": "schema started_at finished_at sparktop simulated status stop_reason plan client targets comparison "
    "slo",
    "plan": "targets concurrency pp tg runs mode duration_s order api seed warmup tokens_from",
    "client": "loop cpu_percent loop_lag_ms connect_ms trustworthy reasons",
    "target": "name url kind engine model error levels",
    "level": "concurrency runs duration_s requests tokens prefill_tps decode_tps pure_decode_tps "
    "sustained_tps peak_tps output_tps total_tps ttfr_ms ttft_ms itl_ms tpot_ms e2e_ms stream_tps served_by "
    "router_overhead_ms router_overhead_from server hardware padding_percent roofline_percent validity "
    "balance",
    "requests": "ok failed cancelled errors",
    "rate": "mean std values ci95",
    "latency": "mean std p50 p90 p95 p99 max count",
}


def as_json(result: SweepResult) -> Any:  # noqa: ANN401 - it may be any JSON
    return json.loads(json.dumps(result.to_json(), allow_nan=False))


def test_the_file_has_every_key_of_the_contract() -> None:
    """Whatever is known or not, no key is missing."""
    told = as_json(made_sweep())
    level = told["targets"][0]["levels"][0]
    parts = {
        "": told,
        "plan": told["plan"],
        "client": told["client"],
        "target": told["targets"][0],
        "level": level,
        "requests": level["requests"],
        "rate": level["decode_tps"],
        "latency": level["ttft_ms"],
    }
    missing = [
        (name, key) for name, keys in CONTRACT.items() for key in keys.split() if key not in parts[name]
    ]
    assert missing == []
    assert told["schema"] == "sparktop.sweep/1"
    assert told["started_at"] == "2026-03-22T18:04:05.678Z"


def test_a_later_versions_keys_are_passed_over_and_missing_ones_unknown() -> None:
    """Neighbouring versions read each other's files."""
    told = as_json(made_sweep())
    told["new"] = {"x": 1}
    told["targets"][0]["levels"][0]["new"] = 1
    del told["targets"][0]["levels"][0]["peak_tps"]
    del told["client"]
    read = result_store.parse(told, "f")
    assert read.targets[0].levels[0].peak_tps is None
    assert read.targets[0].levels[0].decode_tps == made_level().decode_tps
    assert read.client.trustworthy is None


def test_text_of_a_file_is_clean_and_numbers_are_readings(tmp_path: Path) -> None:
    """Escapes go; NaN, infinities and integers that no float holds are unknown, in free parts too."""
    told = as_json(made_sweep())
    told["targets"][0]["name"] = "a\x1b[31m\u202e\n"
    for at, number in enumerate((10**400, -(10**400), 1e300, float("inf"), float("nan"))):
        told["targets"][0]["levels"].append({"concurrency": at + 9, "roofline_percent": number})
    told["targets"][0]["levels"][0]["balance"] = {"hint\x07": ["\x1b]0;x", {"deep": float("inf")}]}
    path = tmp_path / "r.json"
    path.write_text(json.dumps(told), encoding="utf-8")
    target = result_store.load(path).targets[0]
    assert target.name == "a [31m"
    assert {level.roofline_percent for level in target.levels[1:]} == {None}
    assert target.levels[0].balance == {"hint": ["]0;x", {"deep": None}]}


def test_a_level_of_the_same_load_takes_the_others_place() -> None:
    """A level that is measured again is there once; other prompt lengths are other levels."""
    first, again = made_level(2), made_level(2, step=0.5)
    longer = made_level(2, pp=4000)
    result = made_sweep(("a", [])).with_level("a", first).with_level("a", longer).with_level("a", again)
    assert result.targets[0].levels == (longer, again)
    with pytest.raises(ValueError, match="no target b"):
        result.with_level("b", first)


def test_sweeps_of_one_moment_have_files_of_their_own(tmp_path: Path) -> None:
    """A name holds time and label, nothing that leads out of the folder."""
    paths = [result_store.new_file(tmp_path / "s", BEGAN, "../a b") for _ in range(3)]
    stem = "20260322T180405Z-a-b"
    assert [path.name for path in paths] == [f"{stem}.json", f"{stem}-2.json", f"{stem}-3.json"]
    assert {path.parent for path in paths} == {tmp_path / "s"}


def test_the_list_tells_every_file_the_broken_ones_too(tmp_path: Path) -> None:
    """The oldest comes first; a sweep that was killed early is listed, files still being written are not."""
    result_store.save(tmp_path / "20260101T000000Z-a.json", made_sweep())
    (tmp_path / "20260102T000000Z-b.json").touch()
    (tmp_path / "20260103T000000Z-c.json").write_text('{"schema": "sparktop.sweep/9"}', encoding="utf-8")
    (tmp_path / ".20260104T000000Z-d.json").write_text("{", encoding="utf-8")
    first, second, third = result_store.stored_sweeps(tmp_path).values()
    assert first == made_sweep()
    assert "is empty" in str(second)
    assert "sparktop.sweep/9" in str(third)
    assert result_store.stored_sweeps(tmp_path / "none") == {}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b'{"schema": "sparktop.sweep/1", ', "line 1, column 32"),
        (b"{\xff\xfe}", "byte 1 is not UTF-8"),
        (b"[" * 100_000, "not readable as JSON"),
        (b'{"schema": "sparktop.snapshot/1"}', 'its schema is "sparktop.snapshot/1"'),
        (b"[1, 2]", "it names no schema"),
        (b'{"schema": "sparktop.sweep/1"}', "started_at: Field required (and 2 more)"),
    ],
    ids=["empty", "cut", "no UTF-8", "deep", "snapshot", "list", "keys missing"],
)
def test_a_bad_file_is_one_line_with_its_name(tmp_path: Path, content: bytes, words: str) -> None:
    """What, where and what to do; never a traceback."""
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        result_store.load(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert words in message
    assert "\n" not in message
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("char", list("\x85\u2028\u2029"))
def test_a_text_in_json_lines_may_hold_what_separates_lines_elsewhere(char: str, tmp_path: Path) -> None:
    """JSON need not escape these three; a line ends with its line feed."""
    (tmp_path / "runs.jsonl").write_text(f'{{"a": "x{char}y"}}\r\n\n{{"b": 1}}\n', "utf-8", newline="")
    assert read_value(tmp_path / "runs.jsonl") == [{"a": f"x{char}y"}, {"b": 1}]


def test_a_file_over_the_cap_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is a megabyte too large is refused with a message."""
    monkeypatch.setattr("sparktop.sweep.result.store.MOST_BYTES", 10)
    (tmp_path / "big.json").write_bytes(b"[" + b" " * 20 + b"]")
    with pytest.raises(UsageError, match="is over 0 MiB"):
        read_value(tmp_path / "big.json")


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.data())
def test_a_result_with_any_part_changed_is_read_or_refused_in_one_line(data: st.DataObject) -> None:
    """Whatever stands in a place, there is a result of clean text or one line."""
    told = as_json(made_sweep())
    change(told, data, JSON, 4)
    read = read_or_refused(told)
    if isinstance(read, str):
        assert read.startswith("f.json: ")
        assert read.isprintable()
    else:
        assert read_or_refused(as_json(read)) == read


def read_or_refused(told: object) -> SweepResult | str:
    try:
        return result_store.parse(told, "f.json")
    except UsageError as error:
        return str(error)


@pytest.mark.parametrize("kind", ["pools", "users"])
def test_a_result_of_a_kind_of_load_that_is_gone_opens(kind: str) -> None:
    """Targets and times are there; levels of prompts that were sent twice or of users are passed over."""
    found = made_sweep(("a", [made_level(1)])).to_json()
    found["plan"] |= {"load": kind, "points": ["0", "0.5"]}
    for level in found["targets"][0]["levels"]:
        level |= {"load": kind, "value": 0.5}
    result = result_store.parse(json.loads(json.dumps(found)), "old.json")
    assert [(one.name, one.levels) for one in result.targets] == [("a", ())]
    assert result.status == "done"
    assert result.comparison is None
