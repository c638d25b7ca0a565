"""Every block of README.md and docs/ is true: commands run here, on local servers; settings are read.

`UNRUN` lists the commands that do not run here, with the reason; loads, which take minutes to hours, are
planned: all that comes before the first request runs. Blocks of text are what commands print. The YAML blocks
are checked by `tests/export/test_prometheus_files.py`.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from truth import TruthProcess

from sparktop.cli import COMMANDS, command_module, main, parser_of, viewer_parser
from sparktop.commands.sweep import run as sweep_run
from sparktop.sweep.plan.plan import Plan
from sparktop.sweep.result.store import new_file, save, sweeps_folder
from sparktop.watch.state_files import read_recipes
from tests.agent.agent_process import END_S, ROOT, environment
from tests.sources.installed import installed
from tests.sweep.made_results import simulated_sweep
from tests.ui.pseudo_terminal import Terminal

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
TRACE = '{"timestamp": %d, "input_length": 100, "output_length": 4, "hash_ids": [1, %d]}\n'
CSV = "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.0,100,4\n2024-05-10 00:00:09.0,90,4\n"
UNRUN: Mapping[str, str] = {
    r"make (demo|install|test)\b": "of the whole tree: `make wheel`, CI and the tests of the demo run it",
    r".*prometheus\+http": "needs a Prometheus: `make prometheus` watches through one",
}
"""Commands, as regular expressions, that do not run here, each with the reason."""
NEEDS = {"promtool": "prometheus", "jq": "jq", "openssl": "openssl"}
"""Programs of others that the pages use, each with its package."""
ALTERNATE_SCREEN = b"\x1b[?1049h"
LANGUAGES = {"sh", "toml", "json", "yaml", "text"}
SERVES, LOADS, RECORDS = ("agent", "serve", "export"), ("sweep", "capacity"), ("record",)


def blocks(path: Path, language: str) -> list[str]:
    """Return the blocks of a language on a page."""
    text = path.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def lines(path: Path) -> Iterator[str]:
    """Yield each line of a page's shell blocks without its comment; a script of its own is no line."""
    for block in blocks(path, "sh"):
        if not block.startswith("#!"):
            yield from filter(None, (re.sub(r"(^|\s+)#.*", "", line) for line in block.splitlines()))


def shown(path: Path) -> Iterator[str]:
    """Yield each sparktop command of a page, without pipe and what follows `&&`."""
    for line in lines(path):
        command = re.split(r"\s+\||\s+&&", line)[0].strip()
        if re.match(r"(ssh .* )?sparktop\b", command):
            yield command[command.index("sparktop") :]


def named(path: Path) -> Iterator[str]:
    """Yield each sparktop command within the sentences of a page, without where its output goes.

    What docs/upgrade.md has of 1.x is tried below.
    """
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for command in re.findall(r"`(sparktop\s[^`]*)`", "" if path.name == "upgrade.md" else text):
        yield re.sub(r"\s+", " ", command).partition(" > ")[0]


def name_of(line: str) -> str:
    """Return the command of a line of sparktop, "watch" for the viewer."""
    words = shlex.split(line)[1:]
    return words[0] if words and words[0] in COMMANDS else "watch"


ALL = [pytest.param(line, id=f"{path.name}: {line}") for path in PAGES for line in shown(path)]
NAMED = [
    pytest.param(line, id=f"{path.name}: {line}") for path in PAGES for line in dict.fromkeys(named(path))
]
PLANNED = [one for one in ALL if name_of(str(one.values[0])) in LOADS]


@pytest.mark.parametrize("line", [*ALL, *NAMED])
def test_its_arguments_are_accepted(line: str) -> None:
    """The command's own parser accepts the line, of a block or within a sentence."""
    accept(line.removesuffix(" --help"))


def accept(line: str) -> None:
    """Parse a line of sparktop by the parser of its command."""
    words, name = shlex.split(line)[1:], name_of(line)
    parser = viewer_parser() if name == "watch" else parser_of(name)
    command_module(name).add_arguments(parser)
    parser.parse_intermixed_args(words if name == "watch" else words[1:])


@pytest.fixture(scope="module")
def server() -> Iterator[TruthProcess]:
    """Yield a server that answers requests."""
    with TruthProcess() as found:
        yield found


@pytest.mark.outside
@pytest.mark.parametrize("line", PLANNED)
def test_its_load_is_planned(
    line: str, server: TruthProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything before the first request succeeds: files are read, the target is queried, a plan is made."""
    plans: list[Plan] = []

    def keep(plan: Plan, *_: object) -> int:
        plans.append(plan)
        return 0

    monkeypatch.setattr(sweep_run, "make", keep)
    monkeypatch.chdir(tmp_path)
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    (tmp_path / "conversations.jsonl").write_text("".join(TRACE % (60_000 * n, n) for n in range(30)))
    (tmp_path / "day.csv").write_text(CSV)
    command = re.sub(
        r" (spark-a|spark-b|proxy|cluster-tp2)(?![=\w])",
        f" --target \\1=http://127.0.0.1:{server.port}",
        here(line, server.port),
    )
    assert main(shlex.split(command)[1:]) == 0
    assert len(plans) == 1


def here(line: str, port: int) -> str:
    """Return a line with a server of this machine, and free ports, in place of those on the page."""
    line = re.sub(r"(?<![\d.])(?:10\.0\.0|192\.168\.100)\.\d+(?::\d+)?", f"127.0.0.1:{port}", line)
    return re.sub(r"(0\.0\.0\.0|127\.0\.0\.1):975\d", r"\1:0", line)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder, and home, with the files that the pages name."""
    folder = tmp_path_factory.mktemp("prepared")
    prepare(folder, environment(folder))
    return folder


@pytest.mark.process
@pytest.mark.parametrize("page", [path for path in PAGES if blocks(path, "sh")], ids=lambda path: path.name)
def test_every_command_runs(page: Path, server: TruthProcess, prepared: Path, tmp_path: Path) -> None:
    """The lines of a page run in their order in one folder, where recordings and results of before are."""
    env = environment(tmp_path, PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    run = [line for line in lines(page) if not any(re.match(pattern, line) for pattern in UNRUN)]
    run = [line for line in run if name_of(line) not in LOADS]  # planned above
    for line in run:
        for program in filter(NEEDS.get, re.findall(r"\w+", line)):
            installed(program, NEEDS[program])
        run_line(here(line, server.port), tmp_path, env)
    written = [file for line in run for file in re.findall(r"-o (\S+\.(?:html|md|json|csv|om|zst))\b", line)]
    assert [file for file in written if not (tmp_path / file).exists()] == []


def run_line(line: str, folder: Path, env: Mapping[str, str]) -> None:
    """Run a line in `folder` to its end: what does not end by itself until it serves, records or draws."""
    name = name_of(line) if line.startswith("sparktop") else ""
    if name == "replay":
        asyncio.run(on_a_terminal(line, folder))
        return
    if name in (*SERVES, *RECORDS) and not re.search("--systemd-unit|--check|--print", line):
        until_it_runs(line, folder, env)
        return
    if "--write-config" in line:
        (folder / "sparktop.toml").unlink(missing_ok=True)  # a file that exists is left alone
    command = ["/bin/sh", "-c", line]
    done = subprocess.run(  # noqa: S603 - the page's own command
        command, cwd=folder, env=env, capture_output=True, text=True, timeout=END_S, check=False
    )
    assert done.returncode == 0, (line, done.stdout, done.stderr)


def prepare(folder: Path, env: Mapping[str, str]) -> None:
    """Write the files that the pages name: configurations, results, a recording, certificates, rules."""
    (folder / "sparktop.toml").write_text('[[nodes]]\nname = "here"\n', encoding="utf-8")
    result = simulated_sweep("quick", (1, 4), (128,), 16, 3)
    stored = new_file(sweeps_folder(env), datetime(2026, 3, 4, tzinfo=UTC))
    for path in (folder / "before.json", folder / "after.json", stored):
        path.parent.mkdir(parents=True, exist_ok=True)
        save(path, result)
    shutil.copytree(ROOT / "docs", folder / "docs")
    (yaml, *_) = blocks(ROOT / "docs" / "fleets.md", "yaml")
    (folder / "prometheus.yml").write_text(yaml, encoding="utf-8")
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=spark"
    command = [installed("openssl", "openssl"), *words.split(), "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=END_S)  # noqa: S603 - openssl
    until_it_runs("sparktop record -o night.rec.zst", folder, env)


def until_it_runs(command: str, folder: Path, env: Mapping[str, str]) -> None:
    """Start what serves or records, end it with Ctrl+C once it says so; a recording is made anew."""
    if "-o night" in command and "--append" not in command:
        (folder / "night.rec.zst").unlink(missing_ok=True)  # without --append it is left alone
    words = [sys.executable, "-m", *shlex.split(command)]
    words += [] if "--listen" in command or " record" in command else ["--listen", "127.0.0.1:0"]
    # The commands are those of our own pages.
    with Popen(words, cwd=folder, env=env, stdout=DEVNULL, stderr=PIPE, text=True) as process:  # noqa: S603
        try:
            assert process.stderr is not None
            said = [process.stderr.readline()]
            while not re.search("recording to| on https?://", said[-1]):
                said.append(process.stderr.readline())
                assert said[-1], (command, said)
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=END_S)
        finally:
            process.kill()
    assert process.returncode in {0, 128 + signal.SIGINT}, (command, said)


async def on_a_terminal(command: str, folder: Path) -> None:
    """Start what needs a terminal on one; end it with `q` once it draws."""
    terminal = Terminal(folder, (120, 36))
    async with terminal.running(*shlex.split(command)[1:]) as process:
        await terminal.until(ALTERNATE_SCREEN)
        await terminal.more()
        terminal.type(b"q")
        assert await process.wait() == 0, command


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_other_blocks_are_settings_files_and_output(path: Path, tmp_path: Path) -> None:
    """Each block has a known language; TOML is a valid configuration, JSON a table of published rates."""
    text = path.read_text(encoding="utf-8")
    fences = re.findall(r"^```(.*)$", text, re.MULTILINE)
    assert set(fences[::2]) <= LANGUAGES
    for block in blocks(path, "toml"):
        file = tmp_path / "shown.toml"
        file.write_text(block, encoding="utf-8")
        assert main(["config", "--check", str(file)]) == 0
    for block in blocks(path, "json"):
        folder = tmp_path / ".config" / "sparktop" / "recipes"
        folder.mkdir(parents=True)
        folder.chmod(0o700)
        (folder / "shown.json").write_text(block, encoding="utf-8")
        found, wrong = read_recipes(environment(tmp_path))
        assert wrong is None
        assert json.loads(block)["model"] in {one.model for one in found}


@pytest.mark.process
def test_the_hook_writes_one_line_for_an_event(tmp_path: Path) -> None:
    """The script of docs/recording.md, with `cat` in place of the system's logger."""
    installed("jq", "jq")
    (script,) = (one for one in blocks(ROOT / "docs" / "recording.md", "sh") if one.startswith("#!"))
    logger = tmp_path / "logger"
    logger.write_text("#!/bin/sh\ncat\n")
    logger.chmod(0o755)
    event = {"severity": "warning", "subject": "spark-a", "message": "hot", "phase": "begin"}
    done = subprocess.run(  # noqa: S603 - the page's own script
        ["/bin/sh", "-c", script],
        input=json.dumps(event),
        env={"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=END_S,
        check=True,
    )
    assert done.stdout.strip() == "warning spark-a hot begin"


def test_each_exception_is_of_a_shown_command_and_names_a_target() -> None:
    """No exception is left over; targets of make exist."""
    every = [line for path in PAGES for line in lines(path)]
    assert [one for one in UNRUN if not any(re.match(one, line) for line in every)] == []
    targets = re.findall(
        r"^([a-z0-9-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert {line.split()[1] for line in every if line.startswith("make ")} <= set(targets)


def test_what_is_gone_is_refused_and_what_has_a_new_name_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    """The tables of docs/upgrade.md: what the first has is refused, both forms of the second are accepted."""
    page = (ROOT / "docs" / "upgrade.md").read_text(encoding="utf-8")
    gone, renamed = (
        [line.split(" | ") for line in part.splitlines() if line.startswith("| `sparktop")]
        for part in page.split("## What ")[1:]
    )
    assert len(gone) >= 5
    for first, *_ in gone:
        for command in re.findall(r"`(sparktop [^`]*)`", first):
            assert main(shlex.split(command)[1:]) == 2, command
            assert "Traceback" not in capsys.readouterr().err
    assert len(renamed) >= 8
    for row in renamed:
        for command in re.findall(r"`(sparktop [^`]*)`", " ".join(row)):
            accept(command.replace("sparktop themes", "sparktop config themes"))
    assert main(["themes"]) == 0
