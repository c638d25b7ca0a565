"""`sparktop compare` as a command: output, refusals and exit codes."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from sparktop.cli import main
from sparktop.graphics.cells import cell_width
from sparktop.sweep.compare.series import load_reference
from sparktop.sweep.result.store import save, sweeps_folder
from tests.sweep.made_results import made_level, made_sweep

RESULTS = Path(__file__).parent.parent / "data" / "results"
TOPOLOGIES = "ref:spark-topologies-2026-03"


@pytest.fixture(autouse=True)
def own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a store of results for this test alone."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["compare", *words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_on_a_terminal_nothing_is_wider_than_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal, tables are split and sentences wrapped to its width; piped output has full lines."""
    sources = (TOPOLOGIES, "ref:gx10-concurrency-first")
    piped = printed(capsys, *sources)[1]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    shown = printed(capsys, *sources)[1]
    assert max(map(cell_width, shown.splitlines())) <= 80
    assert max(map(cell_width, piped.splitlines())) > 80
    assert any(cell_width(line) > 80 for line in piped.splitlines() if not line.startswith("|"))
    assert piped.count("| c256 ") < shown.count("| c256 ")
    cells = [re.findall(r"`[a-z0-9-]+` \([+−]", text) for text in (piped, shown)]
    assert cells[0] == cells[1]
    assert not [line for line in shown.splitlines() if line != line.rstrip()]


def test_the_reference_prints_its_own_winners(capsys: pytest.CaptureFixture[str]) -> None:
    """The winners of the three tables are those that the reference states, within one percentage point."""
    code, out, err = printed(capsys, TOPOLOGIES)
    assert (code, err) == (0, "")
    printed_winners = re.findall(r"^\| c(\d+) .*`([a-z0-9-]+)` \(([+−]\d+) %\) +\|$", out, flags=re.MULTILINE)
    stated = load_reference(TOPOLOGIES).stated_winners
    expected = [
        (concurrency, winner.winner, winner.percent)
        for metric in ("decode_tps", "prefill_tps", "ttft_ms")
        for concurrency, winner in stated[metric].items()
    ]
    assert len(printed_winners) == len(expected) == 21
    for (concurrency, winner, percent), (at, name, as_stated) in zip(printed_winners, expected, strict=True):
        assert (int(concurrency), winner) == (at, name)
        assert abs(int(percent.replace("−", "-")) - as_stated) <= 1
    assert "- no test possible (*): single runs, or published means\n" in out


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
    assert told["rows"][0]["winner_vs"] == "table"
    assert told["crossovers"][0] == {
        "metric": "decode_tps",
        "between": [32, 64],
        "load": "concurrency",
        "from": "cluster-tp2",
        "to": "simple-shuffle",
        "significant": None,
    }


def test_results_of_all_tools_stand_side_by_side(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Results of five tools and a reference are compared, with the definitions of each."""
    save(tmp_path / "own.json", made_sweep())
    files = [str(path) for path in sorted(RESULTS.glob("*.json"))]
    code, out, _ = printed(capsys, *files, str(tmp_path / "own.json"), TOPOLOGIES)
    assert code == 0
    for tool in ("aiperf 0.13.0", "guidellm 0.8.1", "llama-benchy 0.4.0", "vllm bench serve", "sparktop 1.0"):
        assert f"`{tool}`" in out
    assert "not the same window everywhere" in out
    assert "role-only" not in out  # figures are computed from the detailed file, not read from its summary


def test_with_a_baseline_others_stand_beside_it(capsys: pytest.CaptureFixture[str]) -> None:
    """With a baseline, each row has its value, the other value and the difference."""
    code, out, _ = printed(capsys, "ref:gx10-concurrency-first", "--baseline", "gx10-patched")
    assert code == 0
    assert re.search(r"\| `spark-arena-vanilla` +\| +c10 \| +104.3 \| +160.5 \| \+53.9 % \|", out)


def test_the_same_thing_twice_sets_the_floor(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Two measurements of the same thing, named by --same, give the noise floor."""
    for name, step in (("a", 0.25), ("b", 0.26)):
        save(tmp_path / f"{name}.json", made_sweep((name, [made_level(step=step)])))
    words = [str(tmp_path / "a.json"), str(tmp_path / "b.json"), "--same", "a", "b"]
    code, out, _ = printed(capsys, *words, "--format", "json")
    assert code == 0
    assert json.loads(out)["noise_floor_percent"]["decode_tps"] == pytest.approx(4, abs=0.1)


def test_the_list_has_references_and_stored_sweeps(capsys: pytest.CaptureFixture[str]) -> None:
    """The list has references and stored sweeps, with the names in the files."""
    folder = sweeps_folder(os.environ)
    folder.mkdir(parents=True)
    save(folder / "20260322T180405Z-x.json", made_sweep())
    (folder / "20260323T180405Z-y.json").touch()
    code, out, _ = printed(capsys, "--list")
    assert code == 0
    lines = out.splitlines()
    assert [line.split()[0] for line in lines[:4]][2] == TOPOLOGIES
    assert lines[4].endswith("2026-03-22 18:04  a  done")
    assert "is empty" in lines[5]
    code, out, _ = printed(capsys, "--list", str(folder / "20260322T180405Z-x.json"))
    assert out == "a  sparktop 1.0  m  c2\n"


def test_output_goes_to_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """With -o, the text goes to a file and nothing to standard output."""
    code, out, _ = printed(capsys, TOPOLOGIES, "-o", str(tmp_path / "c.md"))
    assert (code, out) == (0, "")
    assert (tmp_path / "c.md").read_text(encoding="utf-8").startswith("## sparktop compare\n")


def test_options_may_stand_between_files(capsys: pytest.CaptureFixture[str]) -> None:
    """--same takes two words; files may follow it."""
    words = [TOPOLOGIES, "--same", "solo", "least-busy", "ref:spark-vllm-blog", "--format", "json"]
    code, out, _ = printed(capsys, *words)
    assert code == 0
    assert any("spark-tuned" in row["values"] for row in json.loads(out)["rows"])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "nothing to compare"),
        (["/none.json"], "/none.json: cannot be read: No such file or directory"),
        (["ref:none"], "no reference 'none'"),
        ([TOPOLOGIES, "--baseline", "sollo"], "nothing here is called 'sollo': did you mean 'solo'?"),
        ([TOPOLOGIES, "--same", "solo", "solo"], "--same needs two different names"),
        ([TOPOLOGIES, "--format", "xml"], "invalid choice"),
        ([str(RESULTS)], "cannot be read: Is a directory"),
        ([str(RESULTS / "llama-benchy-0.4.0-progress.jsonl")], "is the progress of a run"),
    ],
)
def test_what_cannot_be_compared_is_one_line_and_exit_2(
    capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    """Sources that cannot be compared give one line with the fault and the remedy, and exit code 2."""
    code, out, err = printed(capsys, *words)
    assert (code, out) == (2, "")
    assert err.startswith("sparktop: ")
    assert told in err
    assert err.count("\n") == 1


def test_one_bad_file_among_good_ones_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """If one of several files is invalid it is named, and nothing is compared."""
    (tmp_path / "cut.json").write_text('{"schema": "sparktop.sweep/1", "plan"', encoding="utf-8")
    code, out, err = printed(capsys, TOPOLOGIES, str(tmp_path / "cut.json"))
    assert (code, out) == (2, "")
    assert "cut.json: is cut short or not JSON (line 1, column" in err


def test_one_reference_prints_its_table_and_its_facts(capsys: pytest.CaptureFixture[str]) -> None:
    """A single reference prints each level in its source's terms, and further facts of the source."""
    code, out, _ = printed(capsys, "ref:spark-vllm-blog")
    assert code == 0
    assert re.search(r"^\| c64 +\| +444.0 \| +4,158 \|$", out, flags=re.MULTILINE)
    assert re.search(r"^\| c1 +\| +304 \| +18.0 \| +2,500 \|$", out, flags=re.MULTILINE)
    assert "What `ref:spark-vllm-blog` also says" in out
    assert "memory bandwidth (GB/s) 273; bytes per token (GB) 2.55; limit (tok/s) 107" in " ".join(
        out.split()
    )
    assert "- TTFT (ms): mean time to first token." in out


def test_one_file_prints_its_table(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A single file prints its table as Markdown or, with all values of its runs, as JSON."""
    save(tmp_path / "own.json", made_sweep())
    code, out, _ = printed(capsys, str(tmp_path / "own.json"))
    assert code == 0
    assert re.search(r"^\| c2 +\| +\d", out, flags=re.MULTILINE)
    code, out, _ = printed(capsys, str(tmp_path / "own.json"), "--format", "json")
    (series,) = json.loads(out)["series"]
    assert (series["name"], series["published"], series["levels"][0]["concurrency"]) == ("a", False, 2)
    assert len(series["levels"][0]["figures"]["decode_tps"]["values"]) == 3


def test_a_pipe_without_a_writer_is_not_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file argument that is a pipe ends with one line instead of waiting for ever."""
    monkeypatch.setattr("sparktop.files.READ_S", 0.05)
    os.mkfifo(tmp_path / "pipe")
    assert main(["compare", str(tmp_path / "pipe")]) == 2
    assert "is a pipe or device that had nothing to read within" in capsys.readouterr().err
