"""systemd units of `sparktop export` and `sparktop serve` are valid and start the requested command."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from sparktop.agent.unit import UnitFlags, watched_by, watching_unit
from sparktop.cli import main
from sparktop.config.watch import Needs

pytestmark = pytest.mark.outside
PROGRAM = Path("/bin/true")
"""Stands for sparktop: systemd checks that the program exists."""


def made(flags: UnitFlags, config: str | None, targets: Sequence[str]) -> str:
    """Return the unit that watches these targets, or what this configuration file lists."""
    return watching_unit(flags, *watched_by(config, targets))


def starts(text: str) -> str:
    """Return the ExecStart line of a unit."""
    return next(line for line in text.splitlines() if line.startswith("ExecStart="))


def test_the_unit_watches_targets_or_a_file() -> None:
    """The unit watches targets or a configuration file, by default the usual one; secrets are credentials."""
    plain = UnitFlags(PROGRAM, command="export")
    assert starts(made(plain, None, ())) == "ExecStart=/bin/true export --config /etc/sparktop/sparktop.toml"
    assert starts(made(plain, "/a b.toml", ())) == 'ExecStart=/bin/true export --config "/a b.toml"'
    assert starts(made(plain, None, ("spark-a", "h:8000"))) == "ExecStart=/bin/true export spark-a h:8000"
    secret = UnitFlags(PROGRAM, "0.0.0.0:9751", "/etc/sparktop/token", command="export")
    text = made(secret, None, ())
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
    path.write_text(made(UnitFlags(PROGRAM, command=command), None, ()), encoding="utf-8")
    done = subprocess.run(  # noqa: S603 - a program of the system, a file of ours
        ["systemd-analyze", "verify", "--man=no", str(path)],  # noqa: S607 - wherever it is installed
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_variables_of_the_configuration_come_from_a_file(tmp_path: Path) -> None:
    """If the configuration names variables, or cannot be read here, the unit names a file for them."""
    plain, config = UnitFlags(PROGRAM, command="export"), tmp_path / "sparktop.toml"
    line = "\nEnvironmentFile=-/etc/sparktop/environment\n"
    assert line in made(plain, str(config), ())
    assert line not in made(plain, None, ("spark-a",))
    config.write_text('[[backends]]\nname = "a"\nurl = "http://10.0.0.1:8000"\n')
    assert line not in made(plain, str(config), ())
    config.write_text(f'{config.read_text()}api_key_env = "SECRET_KEY"\n')
    text = made(plain, str(config), ())
    assert line in text
    assert "SECRET_KEY" not in text  # it may be the key itself, in the wrong place


def test_a_configuration_in_a_home_is_not_hidden(tmp_path: Path) -> None:
    """ProtectHome=yes is only there if the configuration and the key files that it names are elsewhere."""
    plain = UnitFlags(PROGRAM, command="export")
    assert "\nProtectHome=yes\n" in made(plain, "/etc/sparktop/other.toml", ())
    text = made(plain, "/home/nobody-here/sparktop.toml", ())
    assert "\nProtectHome=read-only\n" in text
    assert "\nDynamicUser=" not in text
    config = tmp_path / "sparktop.toml"
    config.write_text('[[nodes]]\nname = "a"\nvia = "agent"\ntls_ca = "/home/nobody-here/ca.pem"\n')
    assert "\nProtectHome=read-only\n" in made(plain, str(config), ())
    assert "\nProtectHome=yes\n" in watching_unit(plain, (), Needs())


@pytest.mark.parametrize("command", ["export", "serve"])
def test_a_unit_never_holds_a_password(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A TARGET with a password is refused without being repeated: units can be read by every user."""
    assert main([command, "--systemd-unit", "http://me:hunter2@10.0.0.1:8000"]) == 2
    said = capsys.readouterr()
    assert "a TARGET with a user or password would stand in the unit" in said.err
    assert "hunter2" not in said.err + said.out
