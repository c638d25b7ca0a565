"""docs/prometheus.md: each of its commands runs, and Prometheus accepts its configuration."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agent.agent_process import END_S, ROOT, environment
from tests.sources.installed import installed

PAGE = ROOT / "docs" / "prometheus.md"
NODE = '[[nodes]]\nname = "here"\n'


def blocks(language: str) -> list[str]:
    """Return the code blocks of a language."""
    return re.findall(
        rf"^```{language}\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )


def commands() -> list[str]:
    """Return the lines of all shell blocks, without comments."""
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    return [re.sub(r"\s+#.*", "", line) for line in lines]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def here(command: str, port: int) -> str:
    """Return a command with addresses of this machine and a free port instead of those on the page."""
    command = command.replace("10.0.0.", "127.0.0.").replace("9751", str(port))
    return command if "--listen" in command else f"{command} --listen 127.0.0.1:{port}"


def serve(command: str, folder: Path, env: dict[str, str]) -> str:
    """Start an export, end it once it serves, and return the line that names its URL."""
    words = [sys.executable, "-m", *shlex.split(command)]
    process = subprocess.Popen(words, cwd=folder, env=env, stderr=subprocess.PIPE, text=True)  # noqa: S603 - the page's
    with process:
        try:
            assert process.stderr is not None
            said = [""]
            while ": export on http" not in said[-1]:
                said.append(process.stderr.readline())
                assert said[-1], said
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=END_S)
            assert process.returncode == 0
        finally:
            process.kill()
    return said[-1]


@pytest.mark.process
def test_every_command_of_the_page_runs(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    """All commands run in order in one folder: exports serve and end, the others exit with 0."""
    installed("promtool", "prometheus")
    installed("openssl", "openssl")
    (tmp_path / "sparktop.toml").write_text(NODE)
    (tmp_path / "prometheus.yml").write_text(blocks("yaml")[0])
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    for file, name in zip(certificate, ("cert.pem", "key.pem"), strict=True):
        shutil.copy(file, tmp_path / name)
    env = environment(tmp_path, PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    said = []
    for command in commands():
        if command.startswith("sparktop export") and "--systemd-unit" not in command:
            said.append(serve(here(command, free_port()), tmp_path, env))
            continue
        done = subprocess.run(  # noqa: S603 - the page's own command
            ["/bin/sh", "-c", command],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
    assert [("https" in line, "no token wanted" in line) for line in said] == [
        (False, True),
        (False, True),
        (True, False),
    ]


def test_the_job_of_an_export_with_a_token_and_tls_is_valid(
    tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    """The other job of export is valid in place of the first, with its token and certificate there."""
    promtool = installed("promtool", "prometheus")
    plain, with_tls = blocks("yaml")
    others, _, _ = plain.partition("  - job_name: sparktop-export")
    (tmp_path / "prometheus.yml").write_text(
        others.replace("rule_files: [sparktop.rules.yml]\n", "") + with_tls
    )
    (tmp_path / "token").write_text("0123456789abcdef\n")
    shutil.copy(certificate[0], tmp_path / "cert.pem")
    command = [promtool, "check", "config", "prometheus.yml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603 - promtool
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert "scheme: https" in with_tls


def test_links_of_the_page_lead_to_files() -> None:
    """Linked files, as the rules and the dashboard, exist."""
    links = re.findall(r"\]\(([^)#]+)\)", PAGE.read_text(encoding="utf-8"))
    assert sorted(links) == ["grafana/sparktop.json", "prometheus/sparktop.rules.yml"]
    assert all((PAGE.parent / link).exists() for link in links)
