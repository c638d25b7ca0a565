"""The demo's processes: whatever ends the viewer ends the servers too."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sparktop.config import load as load_config
from sparktop.demo.cluster import DemoCluster, backend_name
from sparktop.demo.command import as_toml, make_watch, run_demo
from sparktop.errors import SparktopError
from sparktop.model.targets import BackendTarget, NodeTarget, Watch

PATIENCE_S = 20.0

HOLDER = """
import sys
from sparktop.demo.cluster import DemoCluster
with DemoCluster(backends=1) as cluster:
    print(cluster.pid, flush=True)
    sys.stdin.read()
"""
SERVER = """
import sys
from sparktop.demo.command import run_demo
sys.exit(run_demo(serve=True, backends=2, seed=0, theme=None, interval_s=None, show=lambda watch: 9))
"""


def ended(pidfd: int) -> bool:
    ready, _, _ = select.select([pidfd], [], [], PATIENCE_S)
    return bool(ready)


def fetch(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:  # noqa: S310 - a URL of this file
        body: bytes = answer.read()
    return body


def start(script: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - this interpreter, a script of this file
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


@pytest.fixture
def holder() -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds a cluster; it prints the servers' pid."""
    with start(HOLDER) as process:
        yield process
        process.kill()


def test_the_servers_answer_while_the_context_lasts() -> None:
    """Inside the context every target answers, and after it the process is gone."""
    with DemoCluster(backends=2, seed=3) as cluster:
        pidfd = os.pidfd_open(cluster.pid)
        assert [target.name for target in cluster.targets] == ["spark-a", "spark-b"]
        for target in cluster.targets:
            assert b"vllm:generation_tokens_total" in fetch(f"{target.url}/metrics")
    assert ended(pidfd)
    os.close(pidfd)


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGINT])
def test_no_servers_outlive_the_process_that_started_them(
    holder: subprocess.Popen[bytes], signum: signal.Signals
) -> None:
    """Killed outright or interrupted: the servers of a dead viewer end."""
    assert holder.stdout is not None
    pidfd = os.pidfd_open(int(holder.stdout.readline()))
    holder.send_signal(signum)
    assert ended(pidfd)
    os.close(pidfd)


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_serving_prints_a_configuration_and_stops_on_a_signal(signum: signal.Signals, code: int) -> None:
    """Stdout holds a TOML file that names both servers, stderr one ready line; a signal ends it cleanly."""
    with start(SERVER) as process:
        assert process.stderr is not None
        ready = process.stderr.readline()
        process.send_signal(signum)
        out, _ = process.communicate(timeout=PATIENCE_S)
    assert ready == b"sparktop demo: 2 simulated servers are ready; Ctrl+C ends\n"
    config = tomllib.loads(out.decode())
    assert [backend["name"] for backend in config["backends"]] == ["spark-a", "spark-b"]
    assert all(backend["url"].startswith("http://127.0.0.1:") for backend in config["backends"])
    assert process.returncode == code


def test_the_viewer_gets_this_machine_and_the_servers() -> None:
    """Without `serve`, the viewer is shown this machine and the servers, and its code is the command's."""
    seen: list[Watch] = []

    def show(watch: Watch) -> int:
        seen.append(watch)
        return 7

    code = run_demo(serve=False, backends=1, seed=0, theme="spark-light", interval_s=2.0, show=show)
    (watch,) = seen
    assert code == 7
    assert [node.via for node in watch.nodes] == ["local"]
    assert [backend.name for backend in watch.backends] == ["spark-a"]
    assert (watch.theme, watch.interval_s) == ("spark-light", 2.0)


def test_the_configuration_says_the_same_as_the_watch(tmp_path: Path) -> None:
    """What is written as TOML is read back as it was, quotes and backslashes in names too."""
    name = 'the "big" one \\ übung'
    backend = BackendTarget(name, "http://127.0.0.1:1", engine="vllm", slots=16)
    watch = Watch(nodes=(NodeTarget(name),), backends=(backend,), interval_s=0.5)
    path = tmp_path / "sparktop.toml"
    path.write_text(as_toml(watch), encoding="utf-8")
    assert replace(load_config(path).watch({}), source=watch.source) == watch


def test_servers_that_cannot_start_are_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that dies at once gives an error that says so, and leaves nothing behind."""
    monkeypatch.setattr(sys, "executable", "/bin/false")
    cluster = DemoCluster()
    with pytest.raises(SparktopError, match="did not start: their process ended"):
        cluster.__enter__()
    with pytest.raises(SparktopError, match="not running"):
        _ = cluster.pid


def test_default_settings_fill_what_the_command_line_left_out() -> None:
    """No theme and no interval mean those of a plain start."""
    watch = make_watch(DemoCluster())
    assert (watch.theme, watch.interval_s) == (Watch().theme, Watch().interval_s)


def test_there_are_names_for_more_servers_than_letters() -> None:
    """The 26th server is spark-z and the next is numbered."""
    assert [backend_name(index) for index in (0, 25, 26)] == ["spark-a", "spark-z", "spark-27"]
