"""`sparktop report`: stored sweeps in every format.

`sparktop compare` as a command: output, refusals and exit codes.
"""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path

import pytest

from sparktop.cli import main
from sparktop.sweep.compare.series import FOLDER, PREFIX
from sparktop.sweep.result.results import SweepResult
from sparktop.sweep.result.store import new_file, save, sweeps_folder
from sparktop.watch.state_files import announced_load
from tests.known import known
from tests.sweep.made_results import BEGAN, made_level, made_sweep

RESULTS = Path(__file__).parent.parent / "data" / "results"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use a store of results for this test alone."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return sweeps_folder({"XDG_DATA_HOME": str(tmp_path)})


def stored(folder: Path, result: SweepResult, minutes: int = 0) -> Path:
    path = new_file(folder, BEGAN + timedelta(minutes=minutes))
    save(path, result)
    return path


@pytest.mark.parametrize(
    ("form", "beginning"),
    [("md", "## sparktop sweep"), ("csv", "target,kind,model,"), ("json", "{"), ("llama-benchy", "{")],
)
def test_a_stored_sweep_is_written_in_every_format(
    folder: Path, capsys: pytest.CaptureFixture[str], form: str, beginning: str
) -> None:
    """A stored sweep is written in every format as by `sparktop sweep`."""
    path = stored(folder, made_sweep())
    assert main(["report", str(path), "--format", form]) == 0
    assert capsys.readouterr().out.startswith(beginning)


def test_a_post_has_an_option_of_its_own(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--post` is `--format post`, on a terminal too, to be pasted; both at once are refused."""
    path = str(stored(folder, made_sweep()))
    assert main(["report", path, "--format", "post"]) == 0
    post = capsys.readouterr().out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["report", path, "--post"]) == 0
    assert capsys.readouterr().out == post
    assert main(["report", path, "--post", "--format", "md"]) == 2
    assert "not allowed with" in capsys.readouterr().err


def test_the_last_sweep_is_the_newest_with_a_measured_level(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The word "last" skips a newer sweep that still runs or has no level, with a line on standard error."""
    stored(folder, made_sweep(("failed", [])), minutes=2)
    assert main(["report", "last", "--format", "csv"]) == 0
    assert capsys.readouterr().err == ""
    stored(folder, made_sweep(("old", [made_level()])), minutes=0)
    stored(folder, made_sweep(("good", [made_level()])), minutes=1)
    assert main(["report", "last", "--format", "csv"]) == 0
    out, err = capsys.readouterr()
    assert "good,engine" in out
    assert re.search(r"last: \S+-sweep.json has no measured level; an older result is used", err)
    assert err.count("\n") == 1
    unended = made_sweep(("new", [made_level()]), status=None)
    running = stored(folder, unended, minutes=3)
    with announced_load(["http://a"], running):
        assert main(["report", "last", "--format", "csv"]) == 0
    out, err = capsys.readouterr()
    assert "good,engine" in out
    assert re.search(r"last: \S+-sweep.json still runs; an .*\n.*no measured level; an ", err)


def test_results_of_other_tools_and_published_tables_are_written(capsys: pytest.CaptureFixture[str]) -> None:
    """Results of other tools are written in all formats but llama-benchy's; `--target` is for sweeps."""
    beginnings = {
        "md": "## sparktop ",
        "html": "<!DOCTYPE html>",
        "csv": "target,source,",
        "json": "{",
    }
    for source in (str(RESULTS / "llama-benchy-0.4.0-c16.json"), "ref:spark-topologies-2026-03"):
        for form, beginning in beginnings.items():
            assert main(["report", source, "--format", form]) == 0
            printed = capsys.readouterr().out
            assert printed.startswith(beginning)
            assert form != "md" or ("sparktop report\n" in printed) is source.endswith(
                ".json"
            )  # one is compared
        assert main(["report", source, "--format", "svg"]) == 0
        assert capsys.readouterr().out.startswith("<svg")
        for words in (["--format", "llama-benchy"], ["--format", "post"], ["--target", "a"]):
            assert main(["report", source, *words]) == 2
            assert "for results of sparktop sweep" in capsys.readouterr().err


def test_several_sweeps_are_one_comparison(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Several sweeps are compared at the levels that they share."""
    before = stored(folder, made_sweep(("router", [made_level(2, step=0.5), made_level(4, step=0.5)])))
    before = before.rename(before.with_name("before.json"))
    after = stored(folder, made_sweep(("router", [made_level(4)]), ("spark", [made_level(4)])), 1)
    after = after.rename(after.with_name("later.json"))
    assert main(["report", str(before), str(after), "--format", "json"]) == 0
    found = SweepResult.model_validate_json(capsys.readouterr().out)
    assert [one.name for one in found.targets] == ["router@before", "router@later", "spark"]
    assert found.plan.concurrency == (2, 4)
    assert found.joined_from == ("before", "later")
    decode = next(row for row in known(found.comparison).rows if row.metric == "decode_tps")
    assert decode.concurrency == 4
    assert set(decode.values) == {"router@before", "router@later", "spark"}
    assert (decode.winner, decode.beats) == (None, ("router@before",))
    assert decode.against in {"router@later", "spark"}
    assert main(["report", str(before), str(after), "--anonymous"]) == 0
    assert "before" not in capsys.readouterr().out
    assert main(["report", str(before), str(before), "--format", "json"]) == 0
    printed = capsys.readouterr()
    assert [one.name for one in SweepResult.model_validate_json(printed.out).targets] == ["router"]
    assert "a file that is named twice counts once" in printed.err


TOPOLOGIES = "ref:spark-topologies-2026-03"


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["compare", *words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_reference_prints_its_own_winners(capsys: pytest.CaptureFixture[str]) -> None:
    """The winners of the three tables are those that the reference states."""
    code, out, err = printed(capsys, TOPOLOGIES)
    assert (code, err) == (0, "")
    row = r"^\| c(\d+) .*`([a-z0-9-]+)` \([+−]\d+ %\)\*? +\|$"
    printed_winners = re.findall(row, out, flags=re.MULTILINE)
    stated = json.loads((FOLDER / f"{TOPOLOGIES.removeprefix(PREFIX)}.json").read_bytes())["stated_winners"]
    expected = [
        (concurrency, winner["winner"])
        for metric in ("decode_tps", "prefill_tps", "ttft_ms")
        for concurrency, winner in stated[metric].items()
    ]
    assert len(expected) == 21
    assert printed_winners == expected
    assert "- no test possible (*): single runs, or published means\n" in out


def test_the_last_sweep_is_compared_by_that_word(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The word "last" is the newest stored sweep, as it is for reports; without one that is said."""
    code, _, err = printed(capsys, "last")
    assert code != 0
    assert "holds no sweep" in err
    stored(folder, made_sweep(("kept", [made_level()])))
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
