"""`sparktop export` as a process: its start, its refusals and its end."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import pytest

from sparktop.cli import main
from tests.export.export_process import exporting

pytestmark = pytest.mark.process
NODE = '[[nodes]]\nname = "here"\n'


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_it_serves_until_a_signal(tmp_path: Path, signum: int, code: int) -> None:
    """The page is available as soon as the URL is printed; a signal ends the process without output."""
    config = tmp_path / "sparktop.toml"
    config.write_text(NODE)
    with exporting(tmp_path, "--config", str(config)) as export:
        assert "sparktop_self_up 1.0\n" in export.page()
        assert export.end(signum) == (code, "")


def test_it_says_what_does_not_answer(tmp_path: Path) -> None:
    """The first line has the page's URL; a server that does not answer has a line with the reason."""
    with exporting(tmp_path, "127.0.0.1:1") as export:
        assert export.line.startswith("sparktop: export on http://127.0.0.1:")
        assert export.line.endswith("/metrics: no token wanted; Ctrl+C ends\n")
        assert export.process.stderr is not None
        line = export.process.stderr.readline()
        assert line == "sparktop: 127.0.0.1:1: nothing listens on 127.0.0.1:1 (connection refused)\n"
        assert export.end(signal.SIGTERM) == (0, "")


def test_it_ends_while_clients_hold_connections(tmp_path: Path) -> None:
    """Idle and incomplete connections, and a watched server that never answers, do not delay the end."""
    config = tmp_path / "sparktop.toml"
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()  # accepts, and never answers
        url = f"http://127.0.0.1:{mute.getsockname()[1]}"
        config.write_text(f'{NODE}[[backends]]\nname = "mute"\nurl = "{url}"\n')
        with exporting(tmp_path, "--config", str(config)) as export:
            place = ("127.0.0.1", int(export.url.rpartition(":")[2]))
            with socket.create_connection(place) as idle, socket.create_connection(place) as half:
                half.sendall(b"GET /metrics HTTP/1.1\r\nHost: ")
                idle.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert idle.recv(15) == b"HTTP/1.1 200 OK"
                assert export.end(signal.SIGTERM) == (0, "")


def test_it_says_in_a_line_what_it_cannot_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing or short token, an invalid address, half a certificate and a port in use are errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SPARKTOP_EXPORT_TOKEN", raising=False)
    assert main(["export", "--listen", "0.0.0.0:0", "10.0.0.1:8000"]) == 2
    assert "SPARKTOP_EXPORT_TOKEN" in capsys.readouterr().err
    assert main(["export", "--listen", "nonsense:99999", "10.0.0.1:8000"]) == 2
    assert "127.0.0.1:9751" in capsys.readouterr().err
    assert main(["export", "--tls-cert", "cert.pem", "10.0.0.1:8000"]) == 2
    assert "--tls-cert and --tls-key go together" in capsys.readouterr().err
    monkeypatch.setenv("SPARKTOP_EXPORT_TOKEN", "short")
    assert main(["export", "10.0.0.1:8000"]) == 2
    assert "16 characters" in capsys.readouterr().err
    monkeypatch.delenv("SPARKTOP_EXPORT_TOKEN")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert main(["export", "--listen", f"127.0.0.1:{taken.getsockname()[1]}", "10.0.0.1:8000"]) == 2
    assert "in use" in capsys.readouterr().err
