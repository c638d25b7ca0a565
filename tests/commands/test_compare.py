"""`sparktop compare` as a command: output, refusals and exit codes."""

from __future__ import annotations

import json
import os
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sparktop.cli import main
from sparktop.sweep.compare.series import FOLDER, PREFIX
from sparktop.sweep.result.store import new_file, save, sweeps_folder
from tests.sweep.made_results import made_level, made_sweep

TOPOLOGIES = "ref:spark-topologies-2026-03"


@pytest.fixture(autouse=True)
def own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a store of results for this test alone."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["compare", *words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_reference_prints_its_own_winners(capsys: pytest.CaptureFixture[str]) -> None:
    """The winners of the three tables are those that the reference states."""
    code, out, err = printed(capsys, TOPOLOGIES)
    assert (code, err) == (0, "")
    printed_winners = re.findall(r"^\| c(\d+) .*`([a-z0-9-]+)` \([+−]\d+ %\) +\|$", out, flags=re.MULTILINE)
    stated = json.loads((FOLDER / f"{TOPOLOGIES.removeprefix(PREFIX)}.json").read_bytes())["stated_winners"]
    expected = [
        (concurrency, winner["winner"])
        for metric in ("decode_tps", "prefill_tps", "ttft_ms")
        for concurrency, winner in stated[metric].items()
    ]
    assert len(expected) == 21
    assert printed_winners == expected
    assert "- no test possible (*): single runs, or published means\n" in out


def test_the_last_sweep_is_compared_by_that_word(capsys: pytest.CaptureFixture[str]) -> None:
    """The word "last" is the newest stored sweep, as it is for reports; without one that is said."""
    code, _, err = printed(capsys, "last")
    assert code != 0
    assert "holds no sweep" in err
    path = new_file(sweeps_folder(os.environ), datetime(2026, 1, 1, tzinfo=UTC))
    save(path, made_sweep(("kept", [made_level()])))
    assert "kept" in printed(capsys, "last", TOPOLOGIES)[1]
    assert "kept" in printed(capsys, "--list", "last")[1]


def test_json_alone_is_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    """With `--format json`, standard output has only the object: baseline, rows, crossovers."""
    code, out, err = printed(capsys, TOPOLOGIES, "--format", "json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert {"baseline", "rows", "crossovers"} <= set(told)
    assert told["baseline"] is None
    assert {"metric", "concurrency", "values", "winner", "winner_vs", "percent", "significant"} <= set(
        told["rows"][0]
    )
    assert told["rows"][0]["significant"] is None
    assert told["rows"][0]["winner_vs"] == "runner-up"
    assert told["crossovers"][0] == {
        "metric": "decode_tps",
        "between": [32, 64],
        "load": "concurrency",
        "from": "cluster-tp2",
        "to": "simple-shuffle",
        "significant": None,
    }
