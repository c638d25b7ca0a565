"""The demo's processes: however the viewer ends, its servers end too."""

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
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from sparktop.config.schema import load as load_config
from sparktop.demo.command import DemoCluster, as_toml, demo_sweeps, make_watch, run_demo
from sparktop.demo.scenario import KEY, KEY_VARIABLE, Plan, backend_name, rival_of
from sparktop.engines import read_page
from sparktop.errors import SparktopError
from sparktop.model.targets import BackendTarget, ModelFacts, NodeTarget, RouterTarget, SweepSettings, Watch
from sparktop.sources.decode import decode

pytestmark = pytest.mark.outside

PATIENCE_S = 100.0
MODEL = "openai/gpt-oss-120b"

HOLDER = """
import sys
from sparktop.demo.command import DemoCluster
with DemoCluster(backends=1) as cluster:
    print(*cluster.pids, flush=True)
    sys.stdin.read()
"""
SERVER = """
import sys
from sparktop.demo.command import run_demo
plan = dict(backends=2, seed=0, scenario="steady", strategy="least-busy", load=4)
sys.exit(run_demo(serve=True, **plan, theme=None, interval_s=None, show=lambda watch: 9))
"""


def ended(pidfd: int) -> bool:
    ready, _, _ = select.select([pidfd], [], [], PATIENCE_S)
    return bool(ready)


def fetch(url: str, body: object = None, **headers: str) -> bytes:
    """Return the response to a GET request; with a `body`, which is sent as JSON, to a POST request."""
    data = None if body is None else json.dumps(body).encode()
    headers |= {} if body is None else {"Content-Type": "application/json"}
    asked = urllib.request.Request(url, data, headers)  # noqa: S310 - a URL of this file
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
    """Start a process that holds a cluster; it prints the pids of the servers."""
    with start(HOLDER) as process:
        yield process
        process.kill()


def running(target: BackendTarget) -> float:
    """Return the number of running requests of a server."""
    page = fetch(f"{target.url}/metrics")
    return sum(lane.running or 0 for lane in read_page(page, at=0.0, answer_ms=0.0).lanes)


def strategy_of(router: RouterTarget) -> str:
    """Return the strategy that a router reports."""
    settings = json.loads(fetch(f"{router.url}/router/settings", Authorization=f"Bearer {KEY}"))
    return str(settings["current_values"]["routing_strategy"])


@contextmanager
def watched(pids: Iterable[int]) -> Iterator[list[int]]:
    """Yield pidfds of processes, which become readable when these end."""
    with ExitStack() as stack:
        descriptors = [os.pidfd_open(pid) for pid in pids]
        for descriptor in descriptors:
            stack.callback(os.close, descriptor)
        yield descriptors


def test_everything_answers_while_the_context_lasts() -> None:
    """Within the context servers, agents and proxies answer under load; afterwards all processes are gone."""
    with DemoCluster(backends=2, seed=3) as cluster, watched(cluster.pids) as descriptors:
        assert [target.name for target in cluster.targets] == ["spark-a", "spark-b"]
        assert [target.nodes for target in cluster.targets] == [("spark-a",), ("spark-b",)]
        assert len(cluster.pids) == 3
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
        cluster.__exit__(None, None, None)
        assert all(ended(descriptor) for descriptor in descriptors)


@pytest.mark.parametrize("where", ["router", "rival", "server"])
def test_the_load_makes_way_for_whoever_asks(where: str) -> None:
    """After one request from outside, to a router or a server, the demo's own load stops."""
    with DemoCluster(backends=2, scenario="steady", load=6, quiet_s=3600.0) as cluster:
        until(lambda: any(map(running, cluster.targets)))
        urls = {"router": cluster.routers[0].url, "rival": cluster.rivals[0].url}
        url = urls.get(where, cluster.targets[1].url)
        answer = fetch(f"{url}/v1/completions", {"model": MODEL, "prompt": "a", "max_tokens": 2})
        assert json.loads(answer)["usage"]["completion_tokens"] <= 2
        until(lambda: not any(map(running, cluster.targets)))
        # Twice: one request may have ended before the next begins.
        assert not any(map(running, cluster.targets))


def test_an_engine_over_two_machines_has_two_agents() -> None:
    """With tensor parallelism a server names two machines, each with its own rank."""
    with DemoCluster(backends=1, scenario="tp2", load=0) as cluster:
        assert cluster.targets[0].nodes == ("spark-a", "spark-b")
        names = [
            (decode(fetch(f"{node.url}/v1/sample")).samples[0].gpus[0].processes or ())[0].name
            for node in cluster.nodes
        ]
        assert len(cluster.pids) == 2
    assert names == ["VLLM::Worker_TP0", "VLLM::Worker_TP1"]


def test_a_server_beside_the_router_has_its_own_machines() -> None:
    """In the scenario `topologies`, an engine over two machines stands beside the routed one."""
    with DemoCluster(backends=1, scenario="topologies", load=0) as cluster:
        assert [(one.name, one.nodes) for one in cluster.targets] == [
            ("spark-a", ("spark-a",)),
            ("cluster-tp2", ("spark-b", "spark-c")),
        ]
        assert [(one.strategy, one.backends) for one in (*cluster.routers, *cluster.rivals)] == [
            ("simple-shuffle", ("spark-a",)),
            ("least-busy", ("spark-a",)),
        ]
        for target in cluster.targets:
            assert b"vllm:" in fetch(f"{target.url}/metrics")
        workers = [
            (decode(fetch(f"{node.url}/v1/sample")).samples[0].gpus[0].processes or ())[0].name
            for node in cluster.nodes
        ]
        assert workers == ["VLLM::EngineCore", "VLLM::Worker_TP0", "VLLM::Worker_TP1"]


def test_a_prompt_beyond_the_context_is_refused_in_the_servers_words() -> None:
    """A server with a context of 20,480 tokens refuses a longer prompt in vLLM's words; the other answers."""
    with DemoCluster(backends=2, scenario="long-context", load=0) as cluster:
        body = {"model": MODEL, "prompt": [7] * 20_490, "max_tokens": 1}
        said: dict[str, Any] = {}
        for target in cluster.targets:
            try:
                answer = fetch(f"{target.url}/v1/completions", body)
                said[target.name] = json.loads(answer)["usage"]["prompt_tokens"]
            except urllib.error.HTTPError as error:
                said[target.name] = (error.code, json.loads(error.read())["error"]["message"])
    assert said["spark-131k"] == 20_490
    code, words = said["spark-20k"]
    assert code == 400
    assert words == (
        "This model's maximum context length is 20480 tokens. However, your prompt contains 20490 input "
        "tokens, which exceeds this limit even without any output tokens. Please reduce the length of the "
        "input prompt. (parameter=input_tokens, value=20490)"
    )


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGINT])
def test_no_process_outlives_the_one_that_started_it(
    holder: subprocess.Popen[bytes], signum: signal.Signals
) -> None:
    """If the viewer is killed or interrupted, engines, proxy and load end."""
    assert holder.stdout is not None
    pids = [int(word) for word in holder.stdout.readline().split()]
    assert len(pids) == 3
    with watched(pids) as descriptors:
        holder.send_signal(signum)
        assert all(ended(descriptor) for descriptor in descriptors)


def test_stopped_servers_end_with_the_one_that_started_them(holder: subprocess.Popen[bytes]) -> None:
    """Stopped processes (SIGSTOP) are ended by the kernel."""
    assert holder.stdout is not None
    pids = [int(word) for word in holder.stdout.readline().split()]
    with watched(pids) as descriptors:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        holder.send_signal(signal.SIGKILL)
        assert all(ended(descriptor) for descriptor in descriptors)


@pytest.mark.parametrize("way", ["end of input", "signal", "no plan"])
def test_a_process_ends_by_itself_when_it_should(way: str) -> None:
    """The end of its input, before or after a plan, and SIGTERM end a process with exit code 0."""
    command = [sys.executable, "-P", "-m", "sparktop.demo.process", "engines"]
    with subprocess.Popen(  # noqa: S603 - our own module
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        if way != "no plan":
            process.stdin.write(Plan(backends=1).line())
            process.stdin.flush()
            assert len(json.loads(process.stdout.readline())["engines"]) == 1
        if way == "signal":
            process.send_signal(signal.SIGTERM)
        else:
            process.stdin.close()
        assert process.wait(PATIENCE_S) == 0


@pytest.mark.parametrize("part", [0, 1, 2])
def test_one_that_dies_takes_no_other_with_it(part: int) -> None:
    """If one process is killed the others continue, until the context ends."""
    with DemoCluster(backends=1) as cluster:
        pids = cluster.pids
        with watched(pids) as descriptors:
            os.kill(pids[part], signal.SIGKILL)
            assert ended(descriptors[part])
            if part:
                assert b"vllm:" in fetch(f"{cluster.targets[0].url}/metrics")
            cluster.__exit__(None, None, None)
            assert all(ended(descriptor) for descriptor in descriptors)


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_serving_prints_a_configuration_and_stops_on_a_signal(signum: signal.Signals, code: int) -> None:
    """`--serve` prints a configuration with both servers and one ready line; a signal ends it cleanly."""
    with start(SERVER) as process:
        assert process.stderr is not None
        ready = process.stderr.readline()
        process.send_signal(signum)
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
    assert KEY not in json.dumps(config)
    assert process.returncode == code


def test_serving_without_its_servers_is_an_error() -> None:
    """If a process of the cluster ends, `--serve` ends with an error."""
    with start(SERVER) as process:
        assert process.stderr is not None
        process.stderr.readline()
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert len(children) == 3
        os.kill(int(children[1]), signal.SIGKILL)
        _, words = process.communicate(timeout=PATIENCE_S)
    assert b"the simulated servers ended" in words
    assert process.returncode == 1


def test_the_viewer_gets_the_whole_cluster() -> None:
    """Without `serve`, the viewer gets nodes, servers and proxy, and returns the exit code."""
    seen: list[Watch] = []

    def show(watch: Watch) -> int:
        seen.append(watch)
        return 7

    code = run_demo(
        serve=False,
        backends=1,
        seed=0,
        scenario="cooldown",
        strategy=None,
        load=0,
        theme="spark-light",
        interval_s=2.0,
        show=show,
    )
    (watch,) = seen
    assert code == 7
    assert [(node.name, node.via) for node in watch.nodes] == [("spark-a", "agent")]
    assert [backend.name for backend in watch.backends] == ["spark-a"]
    assert [(router.strategy, router.backends) for router in watch.routers] == [("least-busy", ("spark-a",))]
    assert (watch.theme, watch.interval_s) == ("spark-light", 2.0)


def test_the_configuration_says_the_same_as_the_watch(tmp_path: Path) -> None:
    """The watch written as TOML is read back the same, also with quotes and backslashes in names."""
    name = 'the "big" one \\ übung'
    node = NodeTarget(name, via="agent", url="http://127.0.0.1:2")
    backend = BackendTarget(name, "http://127.0.0.1:1", engine="vllm", slots=16, nodes=(name,))
    graphs = replace(backend, name="graphs", capture_sizes=(1, 2, 4))
    eager = replace(backend, name="eager", capture_sizes=())
    router = RouterTarget("proxy", "http://127.0.0.1:3", "least-busy", (name,), api_key=KEY)
    sweeps = (
        *demo_sweeps((backend,), (router,)),
        SweepSettings(
            name,
            concurrency=(1, 4),
            prompt_lengths=(8, 16),
            tg=3,
            runs=2,
            climb_to=128,
            more_runs=True,
            mode="steady",
            duration_s=7.5,
            requests=100,
            order="abba",
        ),
        SweepSettings("bare"),
    )
    watch = Watch(
        nodes=(node,),
        backends=(backend, graphs, eager),
        routers=(router,),
        interval_s=0.5,
        sweeps=sweeps,
        sweep_routers=(replace(router, name="only swept"),),
        models={name: ModelFacts(2.55)},
    )
    path = tmp_path / "sparktop.toml"
    path.write_text(as_toml(watch), encoding="utf-8")
    config = load_config(path)
    for env in ({}, {KEY_VARIABLE: KEY}):
        assert replace(config.watch(env), source=watch.source) == watch
        assert config.warnings(env) == []


def test_servers_that_cannot_start_are_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a child ends at its start there is one error, and nothing is left running."""
    monkeypatch.setattr(sys, "executable", "/bin/false")
    cluster = DemoCluster()
    with pytest.raises(SparktopError, match=r"did not start \(engines\): their process ended"):
        cluster.__enter__()
    with pytest.raises(SparktopError, match="not running"):
        _ = cluster.pid


def test_default_settings_fill_what_the_command_line_left_out() -> None:
    """Without arguments, theme and interval are those of a plain start."""
    watch = make_watch(DemoCluster())
    assert (watch.theme, watch.interval_s) == (Watch().theme, Watch().interval_s)


def test_what_a_token_reads_of_the_simulated_model_is_known() -> None:
    """The bytes per token of the simulated model are known, also with `--serve`."""
    watch = make_watch(DemoCluster())
    assert watch.models == {MODEL: ModelFacts(2.55)}
    assert f'[models."{MODEL}"]\nbytes_per_token_gb = 2.55\n' in as_toml(watch)


def test_there_are_names_for_more_servers_than_letters() -> None:
    """The 26th server is spark-z, and later ones are numbered."""
    assert [backend_name(index) for index in (0, 25, 26)] == ["spark-a", "spark-z", "spark-27"]


@pytest.mark.parametrize("strategy", ["least-busy", "simple-shuffle", "round-robin"])
def test_a_rival_chooses_otherwise(strategy: str) -> None:
    """The second router has another strategy than the first, and one that reads no counts."""
    assert rival_of(strategy) != strategy
    assert rival_of(strategy) in {"simple-shuffle", "round-robin"}
