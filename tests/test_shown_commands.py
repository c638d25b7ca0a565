"""Every command that README.md and docs/ show is valid; most of them run here, on local servers.

The commands of docs/prometheus.md run in `tests/export/test_prometheus_files.py`.
"""

from __future__ import annotations

import re
import shlex
import signal
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from truth import TruthProcess

from sparktop.cli import COMMANDS, command_module, main, parser_of, viewer_parser
from sparktop.commands import capacity
from sparktop.commands.sweep import command as sweep
from sparktop.sweep.plan.plan import Plan
from sparktop.sweep.result.store import new_file, save, sweeps_folder
from tests.agent.agent_process import END_S, ROOT, environment
from tests.sweep.made_results import simulated_sweep

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
TRACE = '{"timestamp": %d, "input_length": 100, "output_length": 4, "hash_ids": [1, %d]}\n'
CSV = "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.0,100,4\n2024-05-10 00:00:09.0,90,4\n"


def shown(path: Path) -> Iterator[str]:
    """Yield each sparktop command of a page's shell blocks, without comment, pipe and what follows `&&`."""
    blocks = re.findall(r"^```sh\n(.*?)^```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    for line in "".join(blocks).splitlines():
        command = re.split(r"\s+#|\s+\||\s+&&", line)[0].strip()
        if re.match(r"(ssh .* )?sparktop\b", command):
            yield command[command.index("sparktop") :]


ALL = [pytest.param(line, id=f"{path.name}: {line}") for path in PAGES for line in shown(path)]
LOADS = [one for one in ALL if str(one.values[0]).split()[1:2] in (["sweep"], ["capacity"])]


@pytest.mark.parametrize("line", ALL)
def test_its_arguments_are_accepted(line: str) -> None:
    """The command's own parser accepts the line."""
    words = shlex.split(line)[1:]
    name = words[0] if words and words[0] in COMMANDS else "watch"
    parser = viewer_parser() if name == "watch" else parser_of(name)
    command_module(name).add_arguments(parser)
    parser.parse_intermixed_args(words if name == "watch" else words[1:])


@pytest.fixture(scope="module")
def server() -> Iterator[TruthProcess]:
    """Yield a server that answers requests."""
    with TruthProcess() as found:
        yield found


@pytest.mark.outside
@pytest.mark.parametrize("line", LOADS)
def test_its_load_is_planned(
    line: str, server: TruthProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything before the first request succeeds: files are read, the target is queried, a plan is made."""
    plans: list[Plan] = []

    def keep(plan: Plan, *_: object) -> int:
        plans.append(plan)
        return 0

    monkeypatch.setattr(sweep, "_make", keep)
    monkeypatch.setattr(capacity, "_make", keep)
    monkeypatch.chdir(tmp_path)
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    (tmp_path / "conversations.jsonl").write_text("".join(TRACE % (60_000 * n, n) for n in range(30)))
    (tmp_path / "day.csv").write_text(CSV)
    here = re.sub(r"(?:[0-9]+\.){3}[0-9]+:[0-9]+", f"127.0.0.1:{server.port}", line)
    here = re.sub(
        r" (spark-a|spark-b|proxy|cluster-tp2)(?![=\w])",
        f" --target \\1=http://127.0.0.1:{server.port}",
        here,
    )
    assert main(shlex.split(here)[1:]) == 0
    assert len(plans) == 1


@pytest.mark.process
def test_results_are_compared_and_reported(tmp_path: Path) -> None:
    """The commands on stored results in docs/measuring.md and docs/guide.md run as they are printed."""
    env = environment(tmp_path)
    result = simulated_sweep("quick", (1, 4), (128,), 16, 3)
    stored = new_file(sweeps_folder(env), datetime(2026, 3, 4, tzinfo=UTC))
    for path in (tmp_path / "before.json", tmp_path / "after.json", stored):
        path.parent.mkdir(parents=True, exist_ok=True)
        save(path, result)
    pages = (ROOT / "docs" / name for name in ("measuring.md", "guide.md"))
    lines = [line for page in pages for line in shown(page) if re.match("sparktop (compare|report)", line)]
    assert len(lines) >= 6
    for line in lines:
        assert run(line, tmp_path, env) == 0, line
    assert (tmp_path / "sweep.html").exists()
    assert (tmp_path / "post.md").exists()
    assert (tmp_path / "post.json").exists()


@pytest.mark.process
def test_a_recording_is_made_checked_and_written_elsewhere(tmp_path: Path) -> None:
    """The commands of docs/recording.md run as they are printed; those that record are ended by Ctrl+C."""
    env = environment(tmp_path)
    (tmp_path / "sparktop.toml").write_text('[[nodes]]\nname = "here"\n', encoding="utf-8")
    lines = [
        line for line in shown(ROOT / "docs" / "recording.md") if re.match("sparktop (record|dump)", line)
    ]
    assert len(lines) >= 7
    for line in lines:
        records = " -o night" in line and "record" in line
        if records and "--append" not in line:
            (tmp_path / "night.rec.zst").unlink(missing_ok=True)  # without --append it is left alone
        assert run(line, tmp_path, env, until="recording" if records else None) == 0, line
    assert (tmp_path / "night.csv").exists()
    assert (tmp_path / "night.om").exists()


def run(line: str, folder: Path, env: dict[str, str], until: str | None = None) -> int:
    """Run a command in `folder`; if `until` is given, send Ctrl+C once the output contains it."""
    words = [sys.executable, "-m", *shlex.split(line)]
    # The commands are those of our own pages.
    with Popen(words, cwd=folder, env=env, stdout=DEVNULL, stderr=PIPE, text=True) as process:  # noqa: S603
        try:
            assert process.stderr is not None
            while until is not None and (said := process.stderr.readline()):
                if until in said:
                    process.send_signal(signal.SIGINT)
                    break
            process.communicate(timeout=END_S)
        finally:
            process.kill()
    return process.returncode
