"""The container: what Containerfile copies exists, it is not root, and its health check follows what runs."""

from __future__ import annotations

import os
import re
import signal
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from scripts.container_health import PORTS, SILENT_S, why_not
from sparktop.commands.export import LISTENING as EXPORT
from sparktop.commands.serve import LISTENING as SERVE
from sparktop.model.targets import AGENT_PORT
from tests.agent.agent_process import listening
from tests.programs import served

ROOT = Path(__file__).resolve().parent.parent


class Health(BaseHTTPRequestHandler):
    """Answers as what serves does."""

    def do_GET(self) -> None:
        """Say that all is well at /healthz alone."""
        self.send_response(200 if self.path == "/healthz" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Write nothing."""


@pytest.mark.process
@pytest.mark.parametrize("command", ["export", "serve"])
def test_what_runs_is_well_until_it_hangs(command: str, tmp_path: Path) -> None:
    """The check of the image follows the command line of a real process: stopped, it does not answer."""
    with listening(command, tmp_path) as served:
        words = Path(f"/proc/{served.process.pid}/cmdline").read_text("utf-8").split("\0")
        address = "{}:{}".format(*served.address)
        words[words.index("127.0.0.1:0")] = address
        assert why_not(words) is None
        served.process.send_signal(signal.SIGSTOP)
        assert f"{address}/healthz: " in (why_not(words) or "")
        served.process.send_signal(signal.SIGCONT)


@pytest.mark.outside
@pytest.mark.parametrize("command", ["export", "serve"])
def test_what_serves_is_asked_where_it_listens(command: str) -> None:
    """The port is that of --listen; without an answer the check fails and names the address."""
    words = ["/opt/sparktop/bin/python", "/opt/sparktop/bin/sparktop", command, "--insecure", "--listen"]
    with served(Health) as port:
        assert why_not([*words, f"0.0.0.0:{port}"]) is None
        assert f"https://127.0.0.1:{port}" in (why_not([*words, f"0.0.0.0:{port}", "--tls-cert", "x"]) or "")


def test_the_ports_are_those_of_the_program() -> None:
    """Where --listen names none, the check asks where the command listens."""
    assert {"agent": AGENT_PORT, "export": EXPORT.port, "serve": SERVE.port} == PORTS


def test_what_records_has_just_written(tmp_path: Path) -> None:
    """A recording or a part of it is young; none, or an old one, is a failure."""
    words = ["sparktop", "record", "-o", str(tmp_path / "night.rec.zst"), "http://spark:8000"]
    assert "does not exist" in (why_not(words) or "")
    (tmp_path / "night.rec.zst").touch()
    assert why_not(words) is None
    before = time.time() - 2 * SILENT_S
    os.utime(tmp_path / "night.rec.zst", (before, before))
    assert "120 s ago" in (why_not(words) or "")
    (tmp_path / "night.2.rec.zst").touch()
    assert why_not(words) is None


def test_what_ends_by_itself_is_not_judged() -> None:
    """A command that neither serves nor records is well."""
    assert why_not(["sparktop", "snapshot"]) is None


def test_the_image_is_not_root_and_copies_what_exists() -> None:
    """A user is set after the last command of root, and each copied file is in the tree."""
    text = (ROOT / "Containerfile").read_text(encoding="utf-8")
    copied = [word for word in re.findall(r"(?m)^COPY (?!--from)(\S+) ", text) if word != "."]
    assert copied
    assert all((ROOT / word).exists() for word in copied)
    assert all((ROOT / word).exists() for word in re.findall(r"-r (\S+)", text))
    assert re.search(r"(?m)^USER [1-9]\d*$", text.rpartition("RUN useradd")[2])
    assert "HEALTHCHECK" in text


def test_the_image_builds_from_source_what_has_no_wheel() -> None:
    """Of packages that build the wheel, those with a single file in the lock, their source, are built."""
    text = (ROOT / "Containerfile").read_text(encoding="utf-8")
    lock = (ROOT / "locks/build.txt").read_text(encoding="utf-8").replace("\\\n", "")
    single = {line.partition("==")[0] for line in lock.splitlines() if line.count("--hash=") == 1}
    assert single <= set(re.findall(r"--no-binary=(\S+)", text))
