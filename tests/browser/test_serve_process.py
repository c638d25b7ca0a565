"""`sparktop serve` as a process: its start, its refusals, and its end while viewers are connected."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from sparktop.agent.access import Service
from sparktop.cli import main
from sparktop.demo.scenario import DemoPlan
from sparktop.model.targets import Watch
from tests.agent.agent_process import END_S, listening

pytestmark = pytest.mark.process


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130)])
def test_a_signal_ends_it_while_viewers_look(tmp_path: Path, signum: int, code: int) -> None:
    """A reading viewer, one that does not read and half a request do not delay the end by a signal."""
    config = tmp_path / "sparktop.toml"
    config.write_text('[[nodes]]\nname = "here"\n')
    with listening("serve", tmp_path, "--config", str(config)) as served:
        sockets = [socket.create_connection(served.address, timeout=END_S) for _ in range(3)]
        for one in sockets[:2]:
            one.sendall(b"GET /live/ HTTP/1.1\r\nHost: localhost\r\n\r\n")
        sockets[2].sendall(b"GET / HTTP/1.1\r\nHost: ")
        assert sockets[0].recv(15) == b"HTTP/1.1 200 OK"
        assert served.end(signum) == (code, "")
        for one in sockets:
            one.close()


@pytest.mark.parametrize(
    ("words", "scenario"), [(["--demo"], "oscillation"), (["--demo", "steady"], "steady")]
)
def test_the_demo_is_served_as_simulated(
    words: list[str], scenario: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The servers of a demo scenario are served, marked as simulated on every page."""
    seen: list[object] = []

    def started(plan: DemoPlan, **options: Any) -> int:  # noqa: ANN401 - options of several types
        seen.append(plan.scenario)
        code: int = options["show"](Watch(source="demo"))
        return code

    async def served(
        service: Service,
        names: Collection[str],
        watch: Watch,
        _: Path,
        *,
        ready: Callable[[], None],
        simulated: bool,
    ) -> int:
        ready()
        seen.extend((watch.source, simulated, {"127.0.0.1", "board.lan"} <= set(names)))
        for listener in service.listeners:
            listener.close()
        return 0

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SPARKTOP_SERVE_TOKEN", raising=False)
    monkeypatch.setattr("sparktop.demo.command.run_demo", started)
    monkeypatch.setattr("sparktop.browser.server.serve", served)
    assert main(["serve", "--listen", "127.0.0.1:0", "--name", "board.lan", *words]) == 0
    assert seen == [scenario, "demo", True, True]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--listen", "0.0.0.0:0", "10.0.0.1:8000"], "SPARKTOP_SERVE_TOKEN"),
        (["--listen", "nonsense:99999", "10.0.0.1:8000"], "127.0.0.1:9752"),
        (["--tls-key", "key.pem", "10.0.0.1:8000"], "--tls-cert and --tls-key go together"),
        (["--demo", "steady", "10.0.0.1:8000"], "leave out TARGET"),
        (["--theme", "none", "10.0.0.1:8000"], "there is no theme 'none'"),
    ],
)
def test_it_says_in_a_line_what_it_cannot_do(
    words: list[str],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A wrong argument is reported in one line, before anything is watched."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SPARKTOP_SERVE_TOKEN", raising=False)
    assert main(["serve", *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
