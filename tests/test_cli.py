"""The command line, run in this process: arguments, exit codes, and what is printed to which stream."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from sparktop.cli import COMMANDS, command_module, main
from sparktop.commands import snapshot as snapshot_command
from sparktop.demo.scenario import DemoPlan
from sparktop.errors import OutputError, SparktopError
from sparktop.model.targets import Watch

BAD = Path(__file__).parent / "data" / "configs" / "bad"
GOOD = Path(__file__).parent / "data" / "configs" / "good"


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Isolate each test: its own home, current folder and log handlers."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("SPARKTOP_CONFIG", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "TERM"):
        monkeypatch.delenv(name, raising=False)
    handlers: list[logging.Handler] = []
    # Without pytest's own handlers, unhandled log records go to standard error, as in the program.
    monkeypatch.setattr(logging.getLogger(), "handlers", handlers)
    monkeypatch.setattr(logging, "raiseExceptions", logging.raiseExceptions)
    yield
    logging.captureWarnings(capture=False)
    for handler in handlers:
        handler.close()


def module(monkeypatch: pytest.MonkeyPatch, name: str, **parts: object) -> None:
    """Replace the module `name` by one with these attributes."""
    fake = ModuleType(name)
    for key, part in parts.items():
        setattr(fake, key, part)
    monkeypatch.setitem(sys.modules, name, fake)


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> list[Watch]:
    """Return the list of `Watch` objects that the report command receives instead of reporting."""
    watched: list[Watch] = []

    def report(watch: Watch, **_: object) -> int:
        watched.append(watch)
        return 0

    monkeypatch.setattr(snapshot_command, "report", report)
    return watched


@pytest.mark.parametrize("words", [["--help"], *([name, "--help"] for name in COMMANDS)], ids="_".join)
def test_each_command_has_help(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """`--help` of each command is printed to standard output and ends with exit code 0."""
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert out.startswith("usage: sparktop")
    assert err == ""


TRACE = f"--trace {Path(__file__).parent / 'data' / 'traffic' / 'mooncake.jsonl'}"
WRONG = [
    ("--colour", "unrecognized arguments: --colour; see sparktop --help"),
    ("--conifg x.toml", "unrecognized arguments: --conifg: did you mean '--config'? See sparktop --help"),
    ("--interval nan", "argument --interval: must be 0.25 to 60 seconds (units: ms, s, m, h), not 'nan'"),
    (
        "--interval \x1b[31m",
        "argument --interval: must be 0.25 to 60 seconds (units: ms, s, m, h), not '[31m'",
    ),
    ("--theme spark-drak", "there is no theme 'spark-drak': did you mean 'spark-dark'?"),
    ("--interval 2 snapshot", "write the command first: sparktop snapshot --interval 2; a host of that name"),
    (
        "--config f sweep proxy -c 2,8",
        "write the command first: sparktop sweep --config f proxy -c 2,8; a host",
    ),
    ("127.0.0.1:1 snapshot", "write the command first: sparktop snapshot 127.0.0.1:1; a host of that name"),
    ("--follow FILE", "--follow was removed: watch the servers while it runs"),
    ("swep", "did you mean 'sweep'"),
    ("demo --scenario hang", "did you mean 'hang-a', 'hang-b' or 'hang-blocked'?"),
    ("demo --scenario osc", "there is no 'osc': did you mean 'oscillation'?"),
    ("replay x --speed 3", "there is no '3': choose from"),
    ("watch", "there is no command 'watch': did you mean 'sparktop TARGET'? A host of that name is written"),
    ("watcch", "did you mean 'sparktop TARGET'"),
    ("benchmrak a:8000", "did you mean 'sweep'"),
    ("help", "did you mean '--help'"),
    ("statsu", "did you mean 'snapshot'"),
    ("ftp://host", "ftp:// is not watched"),
    ("sweep 127.0.0.1:1 --pp 2z", "must be a whole number such as 4k, 1 to 10,000,000, not '2z'"),
    ("sweep 127.0.0.1:1 --pp 10m", "a whole number, 1 to 10,000,000, not '10m' (10,485,760)"),
    ("demo --backends 9", "argument --backends: must be a whole number, 1 to 8, not '9'"),
    ("config check x", "sparktop: there is no 'check': did you mean '--check'?"),
    ("config themez", "sparktop: there is no 'themez': did you mean 'themes'?"),
    ("config zzz", "sparktop: there is no 'zzz': choose from themes; see sparktop config --help"),
    ("demo --scenario rain", "--scenario: there is no 'rain'"),
    ("snapshot --format xml", "--format: there is no 'xml'"),
    ("snapshot --size 10x5", "argument --size: must be COLSxROWS, 60x16 to 500x300, not '10x5'"),
    ("snapshot --config", "argument --config: expected one argument; see sparktop snapshot --help"),
    ("snapshot --at 5m", "--at needs --from FILE"),
    ("snapshot --from FILE --seconds 3", "leave out --seconds"),
    ("snapshot --from FILE --timeout 3", "watches nothing: leave out --timeout"),
    ("doctor --start x 127.0.0.1:1", "--start checks a command on this machine alone: leave out TARGET"),
    ("doctor --start x --bundle", "leave out --bundle"),
    ("record --check FILE --max-bytes 5M", "--check reads a recording and watches nothing: leave out --max"),
    ("record --systemd-unit --seconds 5", "records until it is stopped: leave out --seconds"),
    ("dump FILE --list --every 5", "--list prints names alone: leave out --every"),
    ("compare --list --baseline a", "--list compares nothing: leave out --baseline"),
    ("demo --serve --low-bandwidth", "--serve draws nothing: leave out --low-bandwidth"),
    ("serve --demo steady --api-key-env A", "simulated servers: leave out --api-key-env"),
    ("snapshot --from A --compare B C", "--compare was removed: sparktop report FILE"),
    ("replay", "name a recording: FILE"),
    ("config --default --check", "not allowed with argument"),
    ("themes dark", "unrecognized arguments: dark"),
    ("record", "needs -o FILE"),
    ("record -o x --max-bytes 1k", "a size from 1M on"),
    ("compare", "nothing to compare"),
    ("compare --list --format json", "--list prints lines of text: leave out --format"),
    ("compare /none.json", "/none.json: cannot be read: No such file or directory"),
    ("compare ref:spark-topologies-2026-03 --baseline sollo", "'sollo': did you mean 'solo'?"),
    ("capacity a --arrivals poisson", "--arrivals goes with --rate"),
    ("capacity a --slo ttft_p90_ms=1 --preset mlperf-llama3.1-8b", "give one of them"),
    ("capacity a --slo output_tps=600", "does not limit single requests"),
    ("capacity a --users", "--users was removed: --agents --workload chat"),
    ("sweep a --preset topolgy", "did you mean 'topology'"),
    ("sweep a --preset prefix-cache", "prefix-cache was removed: --depth 0,4k"),
    ("sweep a -c 1,0", "whole number"),
    ("sweep a --pp 1..", "a range has two ends, as in 1..8, not '1..'"),
    ("sweep a --seed 4.5", "0 to 2,147,483,647, not '4.5'"),
    ("sweep a --agents 2,foo=3", "'foo=3' is not known there; only workload=… is"),
    ("report last -o x.pdf", "x.pdf: the ending .pdf names no format: end the name in one of .json, .md, "),
    ("sweep a -c 8-1", "the limit after '..' must be 8 or more"),
    ("sweep 127.0.0.1:1 -c 2 --runs 3 --duration 10", "ends by --runs or by --duration: leave out one"),
    ("sweep 127.0.0.1:1 -c 2 --runs 3+ --requests 9", "ends by --runs or by --requests: leave out one"),
    ("sweep a --duration 10x", "seconds (units: ms, s, m, h)"),
    ("sweep 127.0.0.1:1 --order abba --duration 5", "--runs"),
    ("sweep 127.0.0.1:1 127.0.0.1:2 --format llama-benchy", "holds one target"),
    ("sweep 127.0.0.1:1 --agents 2 -c 4", "varies one kind of load: give -c or --agents"),
    ("sweep 127.0.0.1:1 --agents 2 --pp 9", "leave out --pp"),
    ("sweep 127.0.0.1:1 --workload coder", "--workload goes with --agents"),
    (f"sweep 127.0.0.1:1 {TRACE} --rate 2", "give --rate or --trace, not both"),
    (f"sweep 127.0.0.1:1 {TRACE} --pp 64", "has its own lengths: leave out --pp"),
    (f"sweep 127.0.0.1:1 {TRACE} --trace-range 9..5", "--trace-range: '9..5' is empty"),
    (f"sweep 127.0.0.1:1 {TRACE} --trace-format azure", "mooncake.jsonl, line 1: no column"),
]


@pytest.mark.outside
@pytest.mark.parametrize(("words", "expected"), WRONG, ids=[words[:40] for words, _ in WRONG])
def test_wrong_arguments_are_one_line(words: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An invalid argument is reported in one clean line on standard error, with exit code 2."""
    assert main(words.split(" ")) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("sparktop: ")
    assert expected in err
    assert err.count("\n") == 1
    assert "\x1b" not in err


def test_the_file_in_use_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`config` without options prints the path of the file in use; its warnings go to standard error."""
    path = GOOD / "contract.toml"
    monkeypatch.setenv("SPARKTOP_CONFIG", str(path))
    assert main(["config"]) == 0
    out, err = capsys.readouterr()
    assert out == path.read_text(encoding="utf-8")
    unset = "names the environment variable VLLM_API_KEY, which is not set"
    assert f"{path}:28: key 'backends[0].api_key_env' {unset}" in err


@pytest.mark.parametrize("words", [[], ["127.0.0.1:1"], ["snapshot"]], ids=["none", "target", "snapshot"])
def test_a_wrong_file_stops_every_command(
    words: list[str],
    monkeypatch: pytest.MonkeyPatch,
    reported: list[Watch],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Every command ends with exit code 2 if the configuration file is invalid, whatever is to be watched."""
    monkeypatch.setenv("SPARKTOP_CONFIG", str(BAD / "too_fast.toml"))
    assert main(words) == 2
    assert "too_fast.toml:2: key 'interval_s' must be at least 0.25" in capsys.readouterr().err
    assert reported == []


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--config", "none.toml"], 2, "sparktop: none.toml: cannot be read: No such file or directory\n"),
        (["-o", "none/x"], 1, "sparktop: none/x: there is no folder "),
        (["-o", "."], 1, "sparktop: .: is a folder"),
    ],
    ids=["no config", "no folder", "a folder"],
)
def test_what_cannot_be_used_ends_before_watching(
    words: list[str], code: int, message: str, reported: list[Watch], capsys: pytest.CaptureFixture[str]
) -> None:
    """Files that cannot be read or written are reported before anything is watched, with their exit codes."""
    assert main(["snapshot", *words]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(message)
    assert reported == []


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_the_viewer_needs_a_terminal(
    *, terminal: bool, term: str, monkeypatch: pytest.MonkeyPatch, reported: list[Watch]
) -> None:
    """On a terminal the viewer opens; with piped streams or TERM=dumb a single plain report is printed."""
    opened: list[Watch] = []

    def run(watch: Watch, *, simulated: bool) -> int:
        assert not simulated
        opened.append(watch)
        return 0

    module(monkeypatch, "sparktop.ui.app", run=run)
    monkeypatch.setenv("TERM", term)
    for stream in ("stdin", "stdout"):
        monkeypatch.setattr(getattr(sys, stream), "isatty", lambda: terminal)
    assert main(["--theme", "spark-light", "127.0.0.1:1", "--interval", "2", "host:2"]) == 0
    drawn, plain = (1, 0) if terminal and term == "xterm" else (0, 1)
    assert (len(opened), len(reported)) == (drawn, plain)
    (watch,) = [*opened, *reported]
    assert (watch.theme, watch.interval_s) == ("spark-light", 2.0)
    assert [one.name for one in watch.backends] == ["127.0.0.1:1", "host:2"]


def test_the_demo_gets_its_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    """`demo` passes its arguments on, marks the output as simulated and returns the viewer's exit code."""
    given: dict[str, object] = {}
    drawn: list[tuple[Watch, bool]] = []

    def report(watch: Watch, *, simulated: bool, **_: object) -> int:
        drawn.append((watch, simulated))
        return 130

    monkeypatch.setattr(snapshot_command, "report", report)

    def run_demo(plan: DemoPlan, *, show: Callable[[Watch], int], **arguments: object) -> int:
        given.update(arguments, plan=plan)
        return show(Watch(source="demo"))

    module(monkeypatch, "sparktop.demo.command", run_demo=run_demo)
    words = ["demo", "--backends", "3", "--seed", "7", "--serve", "--interval", "2", "--theme", "spark-light"]
    assert main([*words, "--scenario", "hot", "--strategy", "round-robin", "--load", "9"]) == 130
    assert [(watch.source, simulated) for watch, simulated in drawn] == [("demo", True)]
    plan = DemoPlan("hot", backends=3, seed=7, strategy="round-robin", load=9)
    assert given == {"plan": plan, "serve": True, "theme": "spark-light", "interval_s": 2.0}


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (SparktopError("a\nb"), 1, "sparktop: a\nsparktop: b\n"),
        (OutputError("full\x1b[2J"), 1, "sparktop: full [2J\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
    ids=["two lines", "escape", "interrupt"],
)
def test_errors_have_their_exit_code(
    error: BaseException,
    code: int,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An error of sparktop is printed as clean lines with its exit code; Ctrl+C prints nothing, with 130."""

    def fail(*_: object) -> int:
        raise error

    monkeypatch.setattr(command_module("config"), "run", fail)
    assert main(["themes"]) == code
    assert capsys.readouterr().err == line


def test_a_bug_goes_into_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An unexpected error prints one line on the screen and writes a traceback to the log."""

    def fail(*_: object) -> int:
        raise ZeroDivisionError("ours\x1b[31m")

    monkeypatch.setattr(command_module("config"), "run", fail)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert main(["themes"]) == 1
    log = tmp_path / "state" / "sparktop" / "sparktop.log"
    assert (
        capsys.readouterr().err
        == f"sparktop: this is a bug: ZeroDivisionError: ours [31m; the log has more: {log}\n"
    )
    assert "Traceback" in log.read_text(encoding="utf-8")
