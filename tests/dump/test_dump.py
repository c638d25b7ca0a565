"""A recording as CSV and JSON lines: rows, fields, time spans, gaps, and hostile contents.

A recording as OpenMetrics: contents, grouping, and a check by promtool.
"""

from __future__ import annotations

import csv
import io
import json
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest

from sparktop import dump
from sparktop.cli import main
from sparktop.model.plain import json_time
from sparktop.recording.player import Player, Recording
from sparktop.report.json_snapshot import to_json
from stage.rehearsal import START
from tests.dump.conftest import OUTAGE_S, PLAYED_S, instant, page, written
from tests.sources.installed import installed

pytestmark = [pytest.mark.outside, pytest.mark.long]

LOAD = "vllm:num_requests_running 3.0\nvllm:num_requests_waiting 0.0\n"


def dumped(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["dump", *words]) == 0
    return capsys.readouterr().out


def rows(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in dumped(capsys, *words).splitlines()]


def test_each_row_has_the_figures_of_the_snapshot(
    recording: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The names and values of a row are those of the JSON snapshot of the same moment, to the last digit."""
    found = rows(capsys, str(recording), "--from", "2026-01-15T09:00:15Z", "--to", "2026-01-15T09:00:15Z")
    assert [(row["source"], row["name"]) for row in found[:2]] == [
        ("backend", "spark-a"),
        ("backend", "spark-b"),
    ]
    opened = Recording([recording])
    player = Player(opened)
    player.play(instant(15.0).wall)
    shown = to_json(player.snapshot())["backends"]
    opened.close()
    assert isinstance(shown, list)
    for row, backend in zip(found, shown, strict=False):
        for name in ("running", "waiting", "generation_tps", "kv_cache_percent", "state"):
            assert row[name] == backend[name]
        assert row["ttft_ms.p95"] == backend["ttft_ms"]["p95"]
    node = next(row for row in found if row["source"] == "node")
    assert isinstance(node["gpus.0.power_w"], float)


def test_a_row_each_second_and_source(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each backend has exactly one row for each second, also with the field of one source only."""
    found = rows(capsys, str(recording), "--fields", "running")
    for name in ("spark-a", "spark-b"):
        times = [row["time"] for row in found if row["name"] == name and row["source"] == "backend"]
        # From the head at 0 s to the end at 30.35 s.
        assert times == [json_time(instant(float(at)).wall) for at in range(32)]
    assert len(rows(capsys, str(recording), "--every", "15")) < len(found) / 8


def test_a_dead_backend_has_empty_cells(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """After the outage the figures of a backend are empty, never 0, and its error has a column."""
    text = dumped(capsys, str(recording), "--format", "csv", "--fields", "error,running")
    found = [row for row in csv.DictReader(io.StringIO(text)) if row["name"] == "spark-a" and row["error"]]
    assert found
    assert {row["running"] for row in found} == {""}
    assert found[0]["time"] >= f"{instant(OUTAGE_S).wall:%Y-%m-%dT%H:%M:%S}"


def test_the_list_needs_no_recording(capsys: pytest.CaptureFixture[str]) -> None:
    """Without FILE, --list prints all fields, those of parts as on a DGX Spark; anything else needs FILE."""
    names = dumped(capsys, "--list").splitlines()
    wanted = {"running", "ttft_ms.p95", "memory.headroom_bytes", "gpus.0.power_w", "verdict", "strategy"}
    assert wanted <= set(names)
    assert len(names) == len(set(names))
    assert main(["dump"]) == 2
    assert "needs FILE, a recording" in capsys.readouterr().err
    assert main(["dump", "--list", "--format", "openmetrics"]) == 2
    assert "needs FILE, a recording" in capsys.readouterr().err


def test_nothing_is_made_up_for_a_gap(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A gap of ten years has no rows and takes no time."""
    later = 10 * 365 * 86_400.0
    file = written(tmp_path / "gap", [page(float(at), LOAD) for at in (1, 2, 3, later, later + 1)])
    found = rows(capsys, str(file), "--fields", "running")
    assert len([row for row in found if row["name"] == "a"]) < 30
    assert {str(row["time"])[:4] for row in found} == {"2026", "2036"}


def test_text_that_a_spreadsheet_would_run_is_quoted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names that begin like a formula are quoted, and control characters are removed in all formats."""
    name = "=cmd|'/c calc'!A1\x1b[2J"
    file = written(tmp_path / "evil", [page(1.0, LOAD, f"backend:{name}")], names=[name])
    text = dumped(capsys, str(file), "--format", "csv", "--fields", "running")
    assert [row["name"] for row in csv.DictReader(io.StringIO(text))][-1] == "'=cmd|'/c calc'!A1 [2J"
    assert "\x1b" not in text
    assert "\\u001b" not in dumped(capsys, str(file))


def test_the_list_from_a_time_is_that_of_the_span(
    recording: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --from TIME, --list prints the fields of the rows from then on; of a span without records none."""
    start = str(START.timestamp() + 20)
    listed = dumped(capsys, str(recording), "--list", "--from", start).splitlines()
    every_name = ",".join(name for name in listed if "," not in name)
    assert rows(capsys, str(recording), "--from", start, "--fields", every_name)
    in_rows = {name for row in rows(capsys, str(recording), "--from", start) for name in row}
    assert {"running", "gpus.0.power_w"} <= set(listed) <= in_rows
    assert dumped(capsys, str(recording), "--list", "--from", str(START.timestamp() + 9000)) == ""


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--from", "yesterday-ish"], "not a time"),
        (["--from", "1e300"], "not a time"),
        (["--from", "999999999999"], "not a time"),
        (["--from", "end", "--to", "start"], "later than"),
        (["--from", f"{(START + timedelta(hours=1)).astimezone():%H:%M}"], "is after what is kept"),
        (["--every", "0"], "must be"),
        (["-o", "/nowhere/a.csv"], "no folder"),
        (["--fields", "running,xyzzy"], "no 'xyzzy'; sparktop dump --list FILE prints those that there are"),
        (["--fields", "ttft.p95"], "no 'ttft.p95': did you mean 'ttft_ms.p95'? sparktop dump --list"),
        (["--fields", "network.eth9"], "--fields: there is no 'network.eth9'"),
        (["--fields", "bogus", "--format", "openmetrics"], "there is no 'bogus'; sparktop dump --list FILE"),
        (["--fields", "vllm:num_request_running", "--format", "openmetrics"], "'vllm:num_requests_running'?"),
    ],
)
def test_arguments_that_cannot_be_used(
    recording: Path, words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wrong arguments give one line with the reason, and no output."""
    assert main(["dump", str(recording), *words]) in {1, 2}
    out, err = capsys.readouterr()
    assert out == ""
    assert reason in err


PAGE = """\
# HELP vllm:prompt_tokens_total Prompt tokens.
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{{engine="0"}} {0}
# TYPE vllm:prompt_tokens_created gauge
vllm:prompt_tokens_created{{engine="0"}} 1.7e9
# TYPE vllm:ttft histogram
vllm:ttft_bucket{{engine="0",le="0.1"}} 1
vllm:ttft_bucket{{le="+Inf",engine="0"}} {0} # {{trace_id="x"}} 0.4
vllm:ttft_count{{engine="0"}} {0}
vllm:ttft_sum{{engine="0"}} 0.5 12345
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running 3
vllm:num_requests_running 4
vllm:untyped{{backend="own",le="x"}} nan
"""
HOSTILE = 'vllm:num_requests_running{a="\x00\x1b[2J\x80\\n\\"",b="=1"} 1e999\n' + "\n".join(
    [
        'vllm:a{__name__="other"} 1',
        'vllm:a{b="1",b="2"} 1',
        'vllm:a{b="1" 1',
        "vllm:a{bad 1",
        "vllm:a 0x10",
        "vllm:a 1_000",
        "# TYPE vllm:a counter",
        "# EOF",
        "vllm:b " + "9" * 400,
        'vllm:c{a="' + "x" * 20_000 + '"} 1',
        "y" * 20_000 + " 1",
    ]
)


def metrics_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    return dumped(capsys, "--format", "openmetrics", *words)


def backfilled(text: str, folder: Path) -> int:
    """Return the number of samples that promtool imports into blocks."""
    promtool = installed("promtool", "prometheus")
    (folder / "a.om").write_text(text)
    command = [
        promtool,
        "tsdb",
        "create-blocks-from",
        "openmetrics",
        str(folder / "a.om"),
        str(folder / "blocks"),
    ]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)  # noqa: S603 - fixed
    assert ran.returncode == 0, ran.stderr
    return sum(int(line.split()[4]) for line in ran.stdout.splitlines()[1:] if line.startswith("0"))


def test_promtool_takes_every_sample(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Debian's promtool imports each line as a sample: all pages of backends and all node samples."""
    text = metrics_of(capsys, str(recording))
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert backfilled(text, tmp_path) == len(lines)
    for name, count in (("spark-a", OUTAGE_S - 1), ("spark-b", PLAYED_S)):
        start = f'vllm:num_requests_running{{backend="{name}"'
        assert len([line for line in lines if line.startswith(start)]) == count
    assert any(line.startswith('sparktop_node_gpu_power_watts{node="spark-b",gpu="0"}') for line in lines)


def test_more_than_fits_in_memory_is_the_same_text(
    recording: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a memory limit of 2 kB, and so a temporary file, the text is the same."""
    whole = metrics_of(capsys, str(recording))
    monkeypatch.setattr(dump, "MAX_WAITING_BYTES", 2000)
    assert metrics_of(capsys, str(recording)) == whole


def test_a_page_of_the_older_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A page in the older format is converted, with suffixes, exemplars and a label named `backend`."""
    file = written(tmp_path / "a", [page(float(at), PAGE.format(at)) for at in (5, 6)])
    assert (
        metrics_of(capsys, str(file))
        == """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{backend="a"} 3 1768467605.000
vllm:num_requests_running{backend="a"} 3 1768467606.000
# TYPE vllm:prompt_tokens counter
vllm:prompt_tokens_total{backend="a",engine="0"} 5 1768467605.000
vllm:prompt_tokens_created{backend="a",engine="0"} 1700000000.0 1768467605.000
vllm:prompt_tokens_total{backend="a",engine="0"} 6 1768467606.000
vllm:prompt_tokens_created{backend="a",engine="0"} 1700000000.0 1768467606.000
# TYPE vllm:ttft histogram
vllm:ttft_bucket{backend="a",engine="0",le="0.1"} 1 1768467605.000
vllm:ttft_bucket{backend="a",engine="0",le="+Inf"} 5 1768467605.000
vllm:ttft_count{backend="a",engine="0"} 5 1768467605.000
vllm:ttft_sum{backend="a",engine="0"} 0.5 1768467605.000
vllm:ttft_bucket{backend="a",engine="0",le="0.1"} 1 1768467606.000
vllm:ttft_bucket{backend="a",engine="0",le="+Inf"} 6 1768467606.000
vllm:ttft_count{backend="a",engine="0"} 6 1768467606.000
vllm:ttft_sum{backend="a",engine="0"} 0.5 1768467606.000
# TYPE vllm:untyped unknown
vllm:untyped{backend="a",exported_backend="own",le="x"} NaN 1768467605.000
vllm:untyped{backend="a",exported_backend="own",le="x"} NaN 1768467606.000
# EOF
"""
    )


def test_a_hostile_page_cannot_break_the_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A hostile page yields no control characters, false EOF or further name; promtool accepts the rest."""
    file = written(
        tmp_path / "a", [page(5.0, HOSTILE), page(4.0, HOSTILE), page(6.0, HOSTILE, 'backend:"}\n x')]
    )
    assert main(["dump", "--format", "openmetrics", str(file)]) == 0
    text, told = capsys.readouterr()
    assert "sparktop: 20 samples are left out" in told
    assert all(line.isprintable() for line in text.splitlines())
    assert [line for line in text.splitlines() if "EOF" in line] == ["# EOF"]
    assert "other" not in text
    assert backfilled(text, tmp_path) == len([line for line in text.splitlines() if line[0] != "#"])


def test_families_and_intervals_can_be_chosen(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Metric families and the interval between pages can be selected."""
    words = ("--fields", "vllm:num_requests_running", "--every", "15")
    lines = metrics_of(capsys, str(recording), *words).splitlines()
    assert len([line for line in lines if 'backend="spark-b"' in line]) == 2
    assert {line.split("{")[0] for line in lines[1:-1]} == {"vllm:num_requests_running"}
    listed = metrics_of(capsys, str(recording), "--list").splitlines()
    assert "vllm:prompt_tokens" in listed
