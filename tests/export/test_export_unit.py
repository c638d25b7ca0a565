"""The systemd unit of `sparktop export`: systemd takes it, and it starts what was asked for."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from sparktop.agent.unit import UnitFlags
from sparktop.cli import main
from sparktop.export.unit import unit

pytestmark = pytest.mark.outside
PROGRAM = Path("/bin/true")
"""Stands for sparktop: systemd checks that the program exists."""


def starts(text: str) -> str:
    """Return the command line of a unit."""
    return next(line for line in text.splitlines() if line.startswith("ExecStart="))


def test_the_unit_watches_targets_or_a_file() -> None:
    """Without both it is the usual file; a token and a certificate come as credentials."""
    plain = UnitFlags(PROGRAM, command="export")
    assert starts(unit(plain, None, ())) == "ExecStart=/bin/true export --config /etc/sparktop/sparktop.toml"
    assert starts(unit(plain, "/a b.toml", ())) == 'ExecStart=/bin/true export --config "/a b.toml"'
    assert starts(unit(plain, None, ("spark-a", "h:8000"))) == "ExecStart=/bin/true export spark-a h:8000"
    secret = UnitFlags(PROGRAM, "0.0.0.0:9751", "/etc/sparktop/token", command="export")
    text = unit(secret, None, ())
    assert "LoadCredential=token:/etc/sparktop/token" in text
    assert "--listen 0.0.0.0:9751 --token-file ${CREDENTIALS_DIRECTORY}/token" in starts(text)


def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is bound and nothing is watched."""
    assert main(["export", "--systemd-unit", "spark-a"]) == 0
    assert starts(capsys.readouterr().out).endswith(" export spark-a")


def test_systemd_has_no_complaint(tmp_path: Path) -> None:
    """`systemd-analyze verify` has nothing to say."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze on PATH")
    path = tmp_path / "sparktop-export.service"
    path.write_text(unit(UnitFlags(PROGRAM, command="export"), None, ()), encoding="utf-8")
    done = subprocess.run(  # noqa: S603 - a program of the system, a file of ours
        ["systemd-analyze", "verify", "--man=no", str(path)],  # noqa: S607 - wherever it is installed
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
