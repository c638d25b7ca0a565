"""A recording as OpenMetrics: contents, grouping, and a check by promtool."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from sparktop import dump
from sparktop.cli import main
from tests.dump.conftest import OUTAGE_S, PLAYED_S, page, written
from tests.sources.installed import installed

pytestmark = [pytest.mark.outside, pytest.mark.long]

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


def dumped(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["dump", "--format", "openmetrics", *words]) == 0
    return capsys.readouterr().out


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
    text = dumped(capsys, str(recording))
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
    whole = dumped(capsys, str(recording))
    monkeypatch.setattr(dump, "MAX_WAITING_BYTES", 2000)
    assert dumped(capsys, str(recording)) == whole


def test_a_page_of_the_older_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A page in the older format is converted, with suffixes, exemplars and a label named `backend`."""
    file = written(tmp_path / "a", [page(float(at), PAGE.format(at)) for at in (5, 6)])
    assert (
        dumped(capsys, str(file))
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
    lines = dumped(capsys, str(recording), *words).splitlines()
    assert len([line for line in lines if 'backend="spark-b"' in line]) == 2
    assert {line.split("{")[0] for line in lines[1:-1]} == {"vllm:num_requests_running"}
    listed = dumped(capsys, str(recording), "--list").splitlines()
    assert "vllm:prompt_tokens" in listed
