"""The demo's process: however the viewer ends, its servers end too."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from sparktop.config.watch import DEMO_KEY
from sparktop.demo.command import DemoCluster
from sparktop.demo.scenario import DemoPlan
from sparktop.engines import read_page
from sparktop.errors import SparktopError
from sparktop.model.targets import BackendTarget, RouterTarget
from sparktop.sources.decode import decode
from tests.known import known

pytestmark = pytest.mark.outside

PATIENCE_S = 100.0

HOLDER = """
import sys
from sparktop.demo.command import DemoCluster
from sparktop.demo.scenario import DemoPlan
with DemoCluster(DemoPlan(backends=1)) as cluster:
    print(cluster.pid, flush=True)
    sys.stdin.read()
"""
SERVER = """
import sys
from sparktop.demo.command import run_demo
from sparktop.demo.scenario import DemoPlan
plan = DemoPlan("steady", strategy="least-busy", load=4)
sys.exit(run_demo(plan, serve=True, theme=None, interval_s=None, show=lambda watch: 9))
"""


def ended(pidfd: int) -> bool:
    ready, _, _ = select.select([pidfd], [], [], PATIENCE_S)
    return bool(ready)


def fetch(url: str, **headers: str) -> bytes:
    """Return the response to a GET request."""
    asked = urllib.request.Request(url, headers=headers)  # noqa: S310 - a URL of this file
    with urllib.request.urlopen(asked, timeout=PATIENCE_S) as answer:  # noqa: S310 - as above
        found: bytes = answer.read()
    return found


def until(condition: Callable[[], bool]) -> None:
    """Check a condition every 50 ms until it is true; fail if that takes more than `PATIENCE_S` seconds."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        threading.Event().wait(0.05)


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
    """Start a process that holds a cluster; it prints the pid of the servers."""
    with start(HOLDER) as process:
        yield process
        process.kill()


def running(target: BackendTarget) -> float:
    """Return the number of running requests of a server."""
    page = fetch(f"{target.url}/metrics")
    return sum(lane.running or 0 for lane in read_page(page, at=0.0, answer_ms=0.0).lanes)


def strategy_of(router: RouterTarget) -> str:
    """Return the strategy that a router reports."""
    settings = json.loads(fetch(f"{router.url}/router/settings", Authorization=f"Bearer {DEMO_KEY}"))
    return str(settings["current_values"]["routing_strategy"])


@contextmanager
def watched(pid: int) -> Iterator[int]:
    """Yield the pidfd of a process, which becomes readable when this ends."""
    descriptor = os.pidfd_open(pid)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def test_everything_answers_while_the_context_lasts() -> None:
    """Within the context servers, agents and proxies answer under load; afterwards their process is gone."""
    with DemoCluster(DemoPlan(backends=2, seed=3)) as cluster, watched(cluster.pid or 0) as descriptor:
        assert [target.name for target in cluster.targets] == ["spark-a", "spark-b"]
        assert [target.nodes for target in cluster.targets] == [("spark-a",), ("spark-b",)]
        for target in cluster.targets:
            assert b"vllm:generation_tokens_total" in fetch(f"{target.url}/metrics")
        for node in cluster.nodes:
            reply = decode(fetch(f"{node.url}/v1/sample"))
            assert reply.simulated
            assert reply.samples[0].gpus[0].name == "NVIDIA GB10"
        for router in (*cluster.routers, *cluster.rivals):
            assert b"alive" in fetch(f"{router.url}/health/liveliness")
            assert strategy_of(router) == router.strategy
        # The demo's own load sends requests without the test.
        until(lambda: any(map(running, cluster.targets)))
        cluster.__exit__()
        assert ended(descriptor)


def test_the_process_does_not_outlive_the_one_that_started_it(holder: subprocess.Popen[bytes]) -> None:
    """If the viewer is killed, engines, proxies and load end."""
    assert holder.stdout is not None
    with watched(int(holder.stdout.readline())) as descriptor:
        holder.kill()
        assert ended(descriptor)


def test_serving_prints_a_configuration_and_stops_on_a_signal() -> None:
    """`--serve` prints a configuration with both servers and one ready line; a signal ends it cleanly."""
    with start(SERVER) as process:
        ready = known(process.stderr).readline()
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=PATIENCE_S)
    assert ready == b"sparktop demo: 2 simulated servers are ready; Ctrl+C ends\n"
    config = tomllib.loads(out.decode())
    assert [backend["name"] for backend in config["backends"]] == ["spark-a", "spark-b"]
    assert all(backend["url"].startswith("http://127.0.0.1:") for backend in config["backends"])
    assert [node["via"] for node in config["nodes"]] == ["agent", "agent"]
    told = [(one["name"], one["strategy"], one.get("watched", True)) for one in config["routers"]]
    assert told == [("proxy", "least-busy", True), ("simple-shuffle", "simple-shuffle", False)]
    assert [(sweep["key"], sweep["targets"]) for sweep in config["sweeps"]] == [
        ("f5", ["proxy"]),
        ("f6", ["proxy", "simple-shuffle", "spark-a"]),
    ]
    assert DEMO_KEY not in json.dumps(config)
    assert process.returncode == 130


def test_servers_that_cannot_start_are_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the child ends at its start there is one error, and nothing is left running."""
    monkeypatch.setattr(sys, "executable", "/bin/false")
    cluster = DemoCluster()
    with pytest.raises(SparktopError, match="did not start: their process ended"):
        cluster.__enter__()
    assert cluster.pid is None
