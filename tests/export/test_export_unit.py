"""systemd units of `sparktop export` and `sparktop serve` are valid and start the requested command."""

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
    """Return the ExecStart line of a unit."""
    return next(line for line in text.splitlines() if line.startswith("ExecStart="))


def test_the_unit_watches_targets_or_a_file() -> None:
    """The unit watches targets or a configuration file, by default the usual one; secrets are credentials."""
    plain = UnitFlags(PROGRAM, command="export")
    assert starts(unit(plain, None, ())) == "ExecStart=/bin/true export --config /etc/sparktop/sparktop.toml"
    assert starts(unit(plain, "/a b.toml", ())) == 'ExecStart=/bin/true export --config "/a b.toml"'
    assert starts(unit(plain, None, ("spark-a", "h:8000"))) == "ExecStart=/bin/true export spark-a h:8000"
    secret = UnitFlags(PROGRAM, "0.0.0.0:9751", "/etc/sparktop/token", command="export")
    text = unit(secret, None, ())
    assert "LoadCredential=token:/etc/sparktop/token" in text
    assert "--listen 0.0.0.0:9751 --token-file ${CREDENTIALS_DIRECTORY}/token" in starts(text)


@pytest.mark.parametrize("command", ["export", "serve"])
def test_the_command_prints_it(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`--systemd-unit` prints the unit, without listening or watching."""
    assert main([command, "--systemd-unit", "spark-a"]) == 0
    text = capsys.readouterr().out
    assert starts(text).endswith(f" {command} spark-a")
    assert f"StateDirectory=sparktop-{command}\n" in text


def test_a_unit_for_browsers_has_the_names_of_its_proxies(capsys: pytest.CaptureFixture[str]) -> None:
    """Names of proxies are options of the unit for browsers, also if the usual file has the targets."""
    assert main(["serve", "--systemd-unit", "--name", "board.lan"]) == 0
    assert starts(capsys.readouterr().out).endswith(
        " serve --name board.lan --config /etc/sparktop/sparktop.toml"
    )


@pytest.mark.parametrize("command", ["export", "serve"])
def test_systemd_has_no_complaint(tmp_path: Path, command: str) -> None:
    """`systemd-analyze verify` reports nothing."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze on PATH")
    path = tmp_path / f"sparktop-{command}.service"
    path.write_text(unit(UnitFlags(PROGRAM, command=command), None, ()), encoding="utf-8")
    done = subprocess.run(  # noqa: S603 - a program of the system, a file of ours
        ["systemd-analyze", "verify", "--man=no", str(path)],  # noqa: S607 - wherever it is installed
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
