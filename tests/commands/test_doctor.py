"""`sparktop doctor` as a command: exit codes, formats, invalid files."""

from __future__ import annotations

import json
import logging
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparktop.cli import main
from tests.commands.process import ran


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Use a home, a current folder and loggers for this test alone."""
    monkeypatch.chdir(tmp_path)
    for name in ("SPARKTOP_CONFIG", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    handlers: list[logging.Handler] = []
    monkeypatch.setattr(logging.getLogger(), "handlers", handlers)
    monkeypatch.setattr(logging, "raiseExceptions", logging.raiseExceptions)
    yield
    logging.captureWarnings(capture=False)
    for handler in handlers:
        handler.close()


@pytest.fixture
def closed() -> Iterator[str]:
    """Yield an address on which nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.outside
def test_a_failed_check_is_exit_code_1(closed: str, tmp_path: Path) -> None:
    """If a server does not answer, there is one FAIL line with advice, and the exit code is 1."""
    done = ran(tmp_path, "doctor", closed)
    assert (done.returncode, done.stderr) == (1, "")
    lines = done.stdout.splitlines()
    (line,) = (line for line in lines if line.startswith("FAIL"))
    assert line.startswith(
        f"FAIL  {closed} port: nothing listens on {closed} (connection refused) — start it"
    )
    others = [line for line in lines if line[:6] not in {"ok    ", "warn  ", "FAIL  ", "skip  "}]
    assert others[:-2] == ["sparktop", "", "this machine", "", "nodes and servers", ""]
    assert (
        others[-1] == f"next: correct what says FAIL, from the top, then run sparktop doctor {closed} again"
    )
    assert re.fullmatch(r"\d+ ok(, \d+ warnings?)?, \d+ failed, \d+ skipped", others[-2])


@pytest.mark.outside
def test_without_a_failure_it_is_exit_code_0(tmp_path: Path) -> None:
    """A configuration with this machine only has no failure; with JSON, nothing else is printed."""
    (tmp_path / "sparktop.toml").write_text('[[nodes]]\nname = "n"\n', encoding="utf-8")
    done = ran(tmp_path, "doctor", "--format", "json")
    body = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert (body["failed"], body["schema"]) == (0, "sparktop.doctor/1")
    names = [check["name"] for check in body["checks"]]
    assert names[:4] == ["version", "textual", "libraries", "config"]
    assert {"terminal", "open files", "memory"} <= set(names)


@pytest.mark.outside
def test_a_wrong_file_is_a_failed_check(
    tmp_path: Path, closed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each error of the file is a FAIL line; named targets are checked nevertheless."""
    path = tmp_path / "x.toml"
    path.write_text('interval_s = 0.01\nthem = "x"\n', encoding="utf-8")
    assert main(["doctor", "--config", str(path), closed]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith(f"FAIL  config: {path}:") for line in lines) == 2
    assert any(line.startswith(f"FAIL  {closed} port") for line in lines)


@pytest.mark.outside
def test_the_bundle_is_a_private_file_whose_path_is_printed(
    tmp_path: Path, closed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """--bundle writes the checks into a file that only its user can read, without the key, and says so."""
    monkeypatch.setenv("SOME_VARIABLE", "planted-key-77")
    assert main(["doctor", "--bundle", "--api-key-env", "SOME_VARIABLE", closed]) == 1
    path, _, advice = capsys.readouterr().out.rstrip("\n").partition(": ")
    assert advice == "read it before you share it"
    assert (Path(path).parent, Path(path).stat().st_mode & 0o777) == (tmp_path, 0o600)
    text = Path(path).read_text(encoding="utf-8")
    body = json.loads(text)
    assert (body["schema"], body["doctor"]["failed"], body["log"]) == ("sparktop.bundle/1", 1, [])
    assert "planted-key-77" not in text
    assert main(["doctor", "--bundle", "--start", "vllm serve x"]) == 2
