"""The server of `sparktop export`, its process and its systemd unit."""

from __future__ import annotations

import signal
import socket
from collections.abc import Sequence
from pathlib import Path

import pytest

from sparktop.agent.access import own_names
from sparktop.agent.unit import UnitFlags, unit_watch_words, watching_unit
from sparktop.cli import main
from sparktop.config.watch import Needs
from tests.agent.agent_process import listening
from tests.agent.raw_client import ask, connect
from tests.export.conftest import StartServer
from tests.known import known

TOKEN = "0123456789abcdef"  # noqa: S105 - a token of a test


async def status(port: int, *lines: str) -> int:
    """Send a request for the page with these header lines; return the status."""
    client = await connect(port)
    try:
        await client.send("\r\n".join(("GET /metrics HTTP/1.1", *lines, "", "")).encode())
        return known(await client.answer()).status
    finally:
        client.close()


async def test_the_page_comes_as_text(start_server: StartServer) -> None:
    """GET /metrics returns the page; other paths get 404 and other methods 405."""
    served = await start_server()
    answer = await ask(served.port, "/metrics")
    assert (answer.status, answer.headers["content-type"]) == (
        200,
        "text/plain; version=0.0.4; charset=utf-8",
    )
    assert b'sparktop_backend_state{backend="b",state="connecting"} 1.0' in answer.body
    assert (await ask(served.port, "/healthz")).status == 200
    assert (await ask(served.port, "/v1/sample")).status == 404
    assert (await ask(served.port, "/metrics", method="POST")).status == 405


async def test_with_a_token_only_those_who_know_it_get_the_page(start_server: StartServer) -> None:
    """Without the token the page answers 401; /healthz needs none."""
    served = await start_server(TOKEN)
    assert (await ask(served.port, "/metrics")).status == 401
    assert (await ask(served.port, "/metrics", token=TOKEN)).status == 200
    assert (await ask(served.port, "/healthz")).status == 200


async def test_a_web_page_of_another_name_gets_nothing(start_server: StartServer) -> None:
    """Only addresses and names of the server are accepted as Host, which prevents DNS rebinding."""
    served = await start_server(names=own_names("localhost", ["board.lan"]))
    for host in ("127.0.0.1", "10.0.0.1:9751", "localhost:80", "LOCALHOST", "[::1]:9751", "board.lan"):
        assert await status(served.port, f"Host: {host}") == 200, host
    for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example:9751", "xlocalhost", "1"):
        assert await status(served.port, f"Host: {host}") == 421, host


PROGRAM = Path("/bin/true")
"""Stands for sparktop: systemd checks that the program exists."""


def made(flags: UnitFlags, config: str | None, targets: Sequence[str]) -> str:
    """Return the unit that watches these targets, or what this configuration file lists."""
    return watching_unit(flags, *unit_watch_words(config, targets))


def starts(text: str) -> str:
    """Return the ExecStart line of a unit."""
    return next(line for line in text.splitlines() if line.startswith("ExecStart="))


@pytest.mark.outside
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


@pytest.mark.outside
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


@pytest.mark.outside
@pytest.mark.parametrize("command", ["export", "serve"])
def test_a_unit_never_holds_a_password(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A TARGET with a password is refused without being repeated: units can be read by every user."""
    assert main([command, "--systemd-unit", "http://me:hunter2@10.0.0.1:8000"]) == 2
    said = capsys.readouterr()
    assert "a TARGET with a user or password would stand in the unit" in said.err
    assert "hunter2" not in said.err + said.out


NODE = '[[nodes]]\nname = "here"\n'


@pytest.mark.process
def test_it_ends_while_clients_hold_connections(tmp_path: Path) -> None:
    """Idle and incomplete connections, and a watched server that never answers, do not delay the end."""
    config = tmp_path / "sparktop.toml"
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()  # accepts, and never answers
        url = f"http://127.0.0.1:{mute.getsockname()[1]}"
        config.write_text(f'{NODE}[[backends]]\nname = "mute"\nurl = "{url}"\n')
        with listening("export", tmp_path, "--config", str(config)) as export:
            place = export.address
            with socket.create_connection(place) as idle, socket.create_connection(place) as half:
                half.sendall(b"GET /metrics HTTP/1.1\r\nHost: ")
                idle.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert idle.recv(15) == b"HTTP/1.1 200 OK"
                assert export.end(signal.SIGTERM) == (0, "")


@pytest.mark.process
def test_it_says_in_a_line_what_it_cannot_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing or short token, an invalid address, half a certificate and a port in use are errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SPARKTOP_EXPORT_TOKEN", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for words, said in (
            (["--listen", "0.0.0.0:0"], "SPARKTOP_EXPORT_TOKEN"),
            (["--listen", "nonsense:99999"], "127.0.0.1:9751"),
            (["--tls-cert", "cert.pem"], "--tls-cert and --tls-key go together"),
            (["--listen", f"127.0.0.1:{taken.getsockname()[1]}"], "in use"),
        ):
            assert main(["export", *words, "10.0.0.1:8000"]) == 2
            assert said in capsys.readouterr().err
    monkeypatch.setenv("SPARKTOP_EXPORT_TOKEN", "short")
    assert main(["export", "10.0.0.1:8000"]) == 2
    assert "16 characters" in capsys.readouterr().err
