"""The printed systemd unit is valid and gives the agent no more rights than it needs."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from sparktop.agent.unit import UnitFlags, unit, unit_watch_words, watching_unit
from sparktop.cli import command_module, main, parser_of
from sparktop.commands.record import unit as recorder_unit
from tests.agent.agent_process import ran

pytestmark = pytest.mark.outside

PROGRAM = Path("/bin/true")
"""Stands for sparktop: systemd checks that the program exists."""
HARDENED = {
    "NoNewPrivileges": "yes",
    "ProtectSystem": "strict",
    "PrivateTmp": "yes",
    "CapabilityBoundingSet": "",
    "RestrictAddressFamilies": "AF_INET AF_INET6 AF_UNIX AF_NETLINK",
    "DevicePolicy": "closed",
    "PrivateDevices": "no",
    "MemoryMax": "256M",
}


def service(text: str) -> dict[str, str]:
    """Parse the [Service] section; the values of a repeated key are joined with spaces."""
    found: dict[str, str] = {}
    part = ""
    for line in text.splitlines():
        if line.startswith("["):
            part = line
        elif part == "[Service]" and line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found[key] = f"{found[key]} {value}" if key in found else value
    return found


FLAGS = {
    "plain": (UnitFlags(PROGRAM), False),
    "token": (UnitFlags(PROGRAM, listen="0.0.0.0:9750", token_file="/etc/sparktop/token"), True),  # noqa: S106 - a place
    "token wanted": (UnitFlags(PROGRAM, listen="[::]:9750"), True),
    "tls": (UnitFlags(PROGRAM, tls_cert="/etc/ssl/a b/cert.pem", tls_key="/etc/ssl/100%/key.pem"), False),
    "insecure": (UnitFlags(PROGRAM, listen="0.0.0.0:9750", insecure=True), False),
}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd on this machine")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    """`systemd-analyze verify` reports nothing, whatever the flags, and wherever a recorder writes."""
    texts = [unit(flags, wants_token=wants_token) for flags, wants_token in FLAGS.values()]
    watched = unit_watch_words(None, ())
    texts += [recorder_unit(PROGRAM, output, *watched) for output in (None, "/data/a b/night.rec.zst")]
    texts += [watching_unit(UnitFlags(PROGRAM, command=name), *watched) for name in ("export", "serve")]
    paths = []
    for number, text in enumerate(texts):
        paths.append(tmp_path / f"sparktop{number}.service")
        paths[-1].write_text(text, encoding="utf-8")
    done = subprocess.run(  # noqa: S603 - a program of the system, files of ours
        ["systemd-analyze", "verify", "--man=no", *paths],  # noqa: S607 - wherever it is installed
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("name", FLAGS)
def test_every_unit_is_hardened(name: str) -> None:
    """Whatever the flags, the agent may write no file, gain no privilege, and use no device but the GPUs."""
    flags, wants_token = FLAGS[name]
    shown = service(unit(flags, wants_token=wants_token))
    assert {key: shown.get(key) for key in HARDENED} == HARDENED
    assert "char-nvidia rw" in shown["DeviceAllow"]
    assert "~@privileged" in shown["SystemCallFilter"]
    assert "ProtectProc" not in shown


@pytest.mark.parametrize("command", ["export", "serve", "record"])
def test_units_that_watch_are_hardened_alike(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """They have all that the agent's has but its limits of memory; the recorder keeps capabilities."""
    assert main([command, "--systemd-unit", "spark-a"]) == 0
    shown, agents = service(capsys.readouterr().out), service(unit(UnitFlags(PROGRAM), wants_token=False))
    own = {*["ExecStart", "Environment", "StateDirectory", "RestartSec"]}
    limits = {*["MemoryMax", "MemorySwapMax", "OOMScoreAdjust", "TasksMax"]}
    root = {"DynamicUser", "ProtectHome", "CapabilityBoundingSet", "ProtectKernelLogs", "DeviceAllow"}
    alike = agents.keys() - own - limits - (root if command == "record" else set())
    assert {key: shown.get(key) for key in alike} == {key: agents[key] for key in alike}
    assert f" {command} " in shown["ExecStart"]
    assert "spark-a" in shown["ExecStart"].split()
    assert shown["StateDirectory"] == f"sparktop-{command}"
    if command == "record":
        assert shown["CapabilityBoundingSet"] == "CAP_DAC_READ_SEARCH CAP_SYS_PTRACE CAP_SYSLOG"
        assert shown["ProtectHome"] == "read-only"
        assert shown["DeviceAllow"] == f"{agents['DeviceAllow']} /dev/kmsg r"


GIVEN = {"--theme": "gruvbox", "--max-bytes": "2147483648", "--api-key-env": "h:8000=A_KEY"}
"""Values of options that take no number of seconds."""
ELSEWHERE = {"--help", "--systemd-unit", "--listen", "--token-file", "--tls-cert", "--tls-key", "--insecure"}
ELSEWHERE |= {"--name", "--config", "--output", "--append"}
"""Options that other tests give."""


@pytest.mark.parametrize("command", ["export", "serve", "record"])
def test_the_unit_has_every_option_or_refuses_it(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """No option that was given is left out without a word."""
    parser = parser_of(command)
    command_module(command).add_arguments(parser)
    options = {option.option_strings[-1] for option in parser._actions if option.option_strings}
    for option in sorted(options - ELSEWHERE):
        given = [] if option == "--demo" else [GIVEN.get(option, "7.0")]
        if main([command, "h:8000", "--systemd-unit", option, *given]) == 0:
            text = capsys.readouterr().out
            assert " ".join(("h:8000", option, *given)) in service(text)["ExecStart"]
            assert ("EnvironmentFile" in service(text)) is (option == "--api-key-env")
        else:
            assert re.search(
                f"{option}: not allowed with|leave out {option}$", capsys.readouterr().err.strip()
            )


def test_secrets_are_loaded_by_systemd() -> None:
    """Token, certificate and key are credentials, so the agent's user need not be able to read the files."""
    token = service(unit(FLAGS["token"][0], wants_token=True))
    assert token["LoadCredential"] == "token:/etc/sparktop/token"
    words = "/bin/true agent --listen 0.0.0.0:9750 --token-file ${CREDENTIALS_DIRECTORY}/token"
    assert token["ExecStart"] == words
    tls = service(unit(FLAGS["tls"][0], wants_token=False))
    assert tls["LoadCredential"] == "tls-cert:/etc/ssl/a b/cert.pem tls-key:/etc/ssl/100%%/key.pem"
    assert tls["ExecStart"].endswith(
        "--tls-cert ${CREDENTIALS_DIRECTORY}/tls-cert --tls-key ${CREDENTIALS_DIRECTORY}/tls-key"
    )


def test_a_token_that_is_wanted_and_not_named_has_a_usual_place() -> None:
    """Without --token-file, the token of a reachable address has a default path, and a comment creates it."""
    text = unit(FLAGS["token wanted"][0], wants_token=True)
    assert "LoadCredential=token:/etc/sparktop/token" in text
    assert "openssl rand -hex 32 > /etc/sparktop/token" in text
    assert "LoadCredential" not in unit(FLAGS["plain"][0], wants_token=False)
    assert "LoadCredential" not in unit(FLAGS["insecure"][0], wants_token=False)


@pytest.mark.parametrize("name", ["spark top", "100%$b", 'a"b\\'])
def test_odd_names_are_quoted(name: str) -> None:
    """Spaces, %, $, quotes and backslashes in the program's path are escaped for systemd."""
    words = service(unit(UnitFlags(Path("/opt") / name), wants_token=False))["ExecStart"]
    unescaped = words.replace("%%", "%").replace("$$", "$").replace('\\"', '"').replace("\\\\", "\\")
    assert unescaped == f'"/opt/{name}" agent'


@pytest.mark.process
def test_the_command_prints_the_unit_of_its_flags(tmp_path: Path) -> None:
    """`--systemd-unit` prints the unit with an absolute path and the given flags."""
    code, out, err = ran(tmp_path, "--systemd-unit", "--listen", "0.0.0.0:9750")
    assert (code, err) == (0, "")
    words = service(out)["ExecStart"].split()
    assert words[0].startswith("/")
    assert words[1:4] == ["agent", "--listen", "0.0.0.0:9750"]
    assert "LoadCredential" in service(out)
