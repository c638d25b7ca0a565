"""The demo command: starts simulated servers; shows them in the viewer or prints a configuration for them."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Self

import msgspec
from msgspec.structs import replace

from sparktop.config.toml_text import toml_lines, toml_value
from sparktop.config.watch import DEMO_KEY, DEMO_KEY_VARIABLE
from sparktop.demo.scenario import DEFAULT_SCENARIO, QUIET_S, DemoPlan, backend_name
from sparktop.ending import ENDING
from sparktop.errors import OutputError, SparktopError
from sparktop.model.targets import BackendTarget, ModelFacts, NodeTarget, RouterTarget, SweepSpec, Watch
from sparktop.model.text import reason_of
from sparktop.simulation.calibration import BYTES_PER_TOKEN_GB, MODEL

_LOOKS_AT_REST = 3
"""The load resumes no sooner than this many poll intervals after another client's last request: a sweep sends
its next request only after two polls with equal results."""
_SERVE_CODES: dict[int, int] = {signal.SIGINT: 130, signal.SIGTERM: 0, signal.SIGHUP: 129}
"""Exit code of `demo --serve` by the signal that ended it."""
_TERMINAL_CHECK_S = 0.5
"""Seconds between two checks whether the terminal is still there."""


def run_demo(
    plan: DemoPlan, *, serve: bool, theme: str | None, interval_s: float | None, show: Callable[[Watch], int]
) -> int:
    """Start the simulated cluster and open the viewer with `show`; return the exit code.

    With `serve`, print a configuration for the cluster instead, and wait until a signal arrives or the
    terminal closes. `show` is a parameter because this package may not import anything that draws.

    Raises:
        SparktopError: the servers did not start.
    """
    poll_s = Watch().interval_s if interval_s is None else interval_s
    with DemoCluster(replace(plan, quiet_s=max(QUIET_S, _LOOKS_AT_REST * poll_s))) as cluster:
        watch = make_watch(cluster, theme=theme, interval_s=interval_s)
        return _serve(watch) if serve else show(watch)


def make_watch(cluster: DemoCluster, *, theme: str | None = None, interval_s: float | None = None) -> Watch:
    """Return the configuration that watches the simulated machines, servers and proxy of `cluster`."""
    defaults = Watch()
    return Watch(
        nodes=cluster.nodes,
        backends=cluster.targets,
        routers=cluster.routers,
        interval_s=defaults.interval_s if interval_s is None else interval_s,
        theme=defaults.theme if theme is None else theme,
        source="demo",
        models={MODEL: ModelFacts(BYTES_PER_TOKEN_GB)},
        sweeps=demo_sweeps(cluster.targets, cluster.routers, cluster.rivals, scenario=cluster.scenario),
        sweep_routers=cluster.rivals,
    )


def as_toml(watch: Watch) -> str:
    """Return `watch` as the text of a TOML configuration file."""
    return "\n".join((*_toml_lines(watch), ""))


def _toml_lines(watch: Watch) -> Iterator[str]:
    yield "# Simulated servers: they answer for as long as `sparktop demo --serve` runs. Their own load"
    yield f"# pauses while others send requests, and comes back {QUIET_S:.0f} s after the last of these."
    yield from toml_lines({"interval_s": float(watch.interval_s), "theme": watch.theme})
    for node in watch.nodes:
        yield from ("", "[[nodes]]", *toml_lines({"name": node.name, "via": node.via, "url": node.url}))
    for backend in watch.backends:
        fields = _fields(backend, ("name", "url", "engine", "slots", "nodes"))
        fields["cudagraph_capture_sizes"] = backend.capture_sizes
        yield from ("", "[[backends]]", *toml_lines(fields))
    for router in (*watch.routers, *watch.sweep_routers):
        fields = _fields(router, ("name", "url", "strategy", "backends"))
        yield from ("", "[[routers]]", *toml_lines(fields))
        if router.api_key is not None:
            used = f"{DEMO_KEY} is used, and lists its deployments"
            yield f'api_key_env = "{DEMO_KEY_VARIABLE}"  # need not be set: {used}'
        if router in watch.sweep_routers:
            yield "watched = false  # only sweeps load it"
    for model, facts in watch.models.items():
        yield f"\n[models.{toml_value(model)}]"
        yield from toml_lines({"bytes_per_token_gb": facts.bytes_per_token_gb})
    for sweep in watch.sweeps:
        yield from ("", "[[sweeps]]", *toml_lines(_fields(sweep, _SWEEP_FIELDS)))


def _fields(source: object, names: Iterable[str]) -> dict[str, object]:
    """Return the fields of a target or sweep by name; None for those that are empty."""
    return {name: getattr(source, name) or None for name in names}


_SWEEP_FIELDS = (
    *("name", "key", "targets", "concurrency", "prompt_lengths", "agents", "tg", "runs", "climb_to"),
    *("more_runs", "duration_s", "requests", "mode", "order"),
)


def _serve(watch: Watch) -> int:
    """Print the configuration, then wait for a signal or the end of the terminal; return the exit code.

    Raises:
        OutputError: standard output cannot be written.
        SparktopError: a process of the simulated servers ended.
    """
    signals = [
        code for code in (*_SERVE_CODES, signal.SIGCHLD) if signal.getsignal(code) is not signal.SIG_IGN
    ]
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    # Before anything is printed: a terminal that goes away after that is not a terminal any more.
    terminal = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
    try:
        sys.stdout.write(as_toml(watch))
        sys.stdout.flush()
    except OSError as error:
        raise OutputError(f"standard output: {reason_of(error)}") from None
    count = len(watch.backends)
    servers = "1 simulated server is" if count == 1 else f"{count} simulated servers are"
    sys.stderr.write(f"sparktop demo: {servers} ready; Ctrl+C ends\n")
    sys.stderr.flush()
    received = _first_signal(signals, terminal)
    if received == signal.SIGCHLD:
        raise SparktopError("the simulated servers ended")
    ENDING.begin(_SERVE_CODES[received])
    return _SERVE_CODES[received]


def _first_signal(signals: Collection[int], terminal: int | None) -> int:
    """Wait for one of `signals`, which are blocked, and return its number.

    If the terminal with the descriptor `terminal` is closed, even before this call, return SIGHUP.
    """
    ends = select.poll()
    if terminal is not None:
        # A session leader that waits for this process, such as make, does not pass the hang-up on.
        ends.register(terminal, 0)
    while True:
        received = signal.sigtimedwait(signals, _TERMINAL_CHECK_S)
        if received is not None:
            return received.si_signo
        if ends.poll(0):
            return signal.SIGHUP


_START_S = 30.0
"""Seconds to wait for a process to start: with aiohttp this takes half a second, and many times that on a
busy machine."""
_STOP_S = 3.0
"""Seconds that a process has to end before it is killed."""
_HOST = "127.0.0.1"


Child = subprocess.Popen[bytes]


class DemoCluster:
    """Context manager that runs the demo's servers, machines, proxy and load as child processes.

    Each child process has its own session, so that Ctrl+C in the terminal reaches only the viewer. If this
    process ends in any way, the child processes end too: their standard input ends, and the kernel sends them
    a signal. The demo's load pauses while other clients send requests. The servers report these requests to
    the load's process through a pipe.
    """

    def __init__(self, plan: DemoPlan | None = None) -> None:
        """Store what is to be simulated; entering the context starts the processes."""
        self._plan = plan or DemoPlan()
        self._children: dict[str, Child] = {}
        """The processes by what they run: "engines", "proxy" and perhaps "load"."""
        self.targets: tuple[BackendTarget, ...] = ()
        """The simulated inference servers; empty before the start."""
        self.nodes: tuple[NodeTarget, ...] = ()
        """The agents of the simulated machines; empty before the start."""
        self.routers: tuple[RouterTarget, ...] = ()
        """The proxy; empty before the start."""
        self.rivals: tuple[RouterTarget, ...] = ()
        """A second proxy with another routing strategy, which only sweeps load; empty before the start."""

    @property
    def scenario(self) -> str:
        """Name of the scenario."""
        return self._plan.scenario

    @property
    def pids(self) -> tuple[int, ...]:
        """Ids of the processes in the order engines, proxy, load; without the last if the load is 0."""
        return tuple(child.pid for child in self._children.values())

    def __enter__(self) -> Self:
        """Start the processes and wait until all of them are ready.

        Raises:
            SparktopError: a process did not start.
        """
        try:
            self._start(self._plan)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self, plan: DemoPlan) -> None:
        # All are spawned at once, since each takes equally long to start; each gets its plan when the servers
        # that it needs are ready.
        servers, load = plan, plan
        if plan.effective_scenario().load:
            reading, writing = os.pipe()
            servers, load = replace(plan, visitors=writing), replace(plan, visitors=reading)
            try:
                pipes = {"engines": writing, "proxy": writing, "load": reading}
                self._children = {part: _spawn_part(part, pipe) for part, pipe in pipes.items()}
            finally:
                os.close(reading)
                os.close(writing)
        else:
            self._children = {part: _spawn_part(part) for part in ("engines", "proxy")}
        deadline, scenario = time.monotonic() + _START_S, plan.effective_scenario()
        ports_of = self._send_plan("engines", servers, deadline)
        self._set_engine_targets(ports_of["engines"], ports_of["agents"])
        routed = self.targets[: plan.backends]
        urls, names = tuple(target.url for target in routed), tuple(target.name for target in routed)
        ports = self._send_plan("proxy", replace(servers, urls=urls), deadline)["proxies"]
        proxy, rival = (f"http://{_HOST}:{port}" for port in ports)
        other = scenario.second_strategy
        self.routers = (RouterTarget("proxy", proxy, scenario.strategy, names, api_key=DEMO_KEY),)
        self.rivals = (RouterTarget(other, rival, other, names, api_key=DEMO_KEY),)
        if "load" in self._children:
            self._send_plan("load", replace(load, urls=(proxy,)), deadline)

    def _set_engine_targets(self, ports: list[int], agents: list[int]) -> None:
        hosts = [backend_name(index) for index in range(len(agents))]
        free = iter(hosts)
        self.targets = tuple(
            BackendTarget(
                server.name,
                f"http://{_HOST}:{port}",
                engine="vllm",
                nodes=tuple(islice(free, server.machines)),
                slots=server.lanes * server.profile.max_num_seqs,
                capture_sizes=server.profile.capture_sizes,
            )
            for server, port in zip(
                self._plan.effective_scenario().servers(self._plan.backends), ports, strict=True
            )
        )
        self.nodes = tuple(
            NodeTarget(host, via="agent", url=f"http://{_HOST}:{port}")
            for host, port in zip(hosts, agents, strict=True)
        )

    def _send_plan(self, part: str, plan: DemoPlan, deadline: float) -> dict[str, list[int]]:
        """Send a plan to a child process; return the ports that the process reports, by type of server.

        The process reports once it is ready. `deadline` is a monotonic time in seconds.

        Raises:
            SparktopError: the process failed to start, ended, or did not report before `deadline`.
        """
        stdin, stdout = self._children[part].stdin, self._children[part].stdout
        assert stdin is not None  # noqa: S101 - opened as pipes
        assert stdout is not None  # noqa: S101 - as above
        with suppress(BrokenPipeError):  # it has ended, and will not answer
            stdin.write(msgspec.json.encode(plan) + b"\n")
            stdin.flush()
        ready, _, _ = select.select([stdout], [], [], max(0.0, deadline - time.monotonic()))
        line = stdout.readline() if ready else b""
        if not line:
            what = "their process ended" if ready else f"no word for {_START_S:.0f} s"
            raise SparktopError(f"the simulated servers did not start ({part}): {what}")
        answer: dict[str, list[int]] = json.loads(line)
        if "error" in answer:
            raise SparktopError(f"the simulated servers did not start ({part}): {answer['error']}")
        return answer

    def __exit__(self, *_: object) -> None:
        """End the processes."""
        children, self._children = [*self._children.values()], {}
        # The load first: if servers ended before their clients, they would have to break off answers.
        for child in reversed(children):
            for pipe in (child.stdin, child.stdout):  # the end of its input makes the process end
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()
        for child in reversed(children):
            try:
                child.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, 9)
                child.wait()


def _spawn_part(part: str, *pipes: int) -> subprocess.Popen[bytes]:
    # Failures are reported as JSON; other output would spoil the viewer's screen.
    return subprocess.Popen(  # noqa: S603 - our own module, no shell
        [sys.executable, "-P", "-m", "sparktop.demo.process", part],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        pass_fds=pipes,
    )


_LEVEL_S = 11.0
"""Seconds per level: a little more than a valid level needs, because bursts in the demo take up to four
seconds."""


def demo_sweeps(
    backends: Sequence[BackendTarget],
    routers: Sequence[RouterTarget],
    rivals: Sequence[RouterTarget] = (),
    *,
    scenario: str = DEFAULT_SCENARIO,
) -> tuple[SweepSpec, ...]:
    """Return the demo's two sweeps: key f5 loads the router alone, f6 compares the scenario's targets.

    `rivals` are further routers for the comparison. Return () if there are no backends or no routers.
    """
    if not backends or not routers:
        return ()
    router = SweepSpec(
        "router",
        targets=(routers[0].name,),
        concurrency=(1, 4, 16),
        prompt_lengths=(128,),
        tg=32,
        duration_s=_LEVEL_S,
        key="f5",
    )
    servers = tuple(target.name for target in backends)
    routed = tuple(target.name for target in (*routers, *rivals))
    return router, replace(_comparison_sweep(scenario, servers, routed), key="f6")


_AGENTS_S = 60.0
"""Seconds of a level of agents: some calls of each."""


def _comparison_sweep(scenario: str, servers: tuple[str, ...], routers: tuple[str, ...]) -> SweepSpec:
    """Return the sweep that compares a scenario's targets, which are named by `servers` and `routers`.

    For most scenarios, the targets are all routers and the first server.
    """
    if scenario == "agents":
        return SweepSpec("agents at work", targets=servers[:1], agents=(2, 8), duration_s=_AGENTS_S)
    name, targets, concurrency, lengths, tg = {
        # As in spark-topologies-2026-03: its concurrency, lengths and columns.
        "topologies": (
            *("topologies", (servers[0], servers[-1], *routers)),
            *((1, 2, 4, 8, 16, 32, 64), (1024,), 128),
        ),
        "recipes": ("recipes", servers, (1, 2, 4, 5, 8, 10, 16), (2048,), 128),
        # Up to 39,000 as in spark-dgx-benchmark; the second server refuses prompts beyond its context.
        "long-context": ("long-context", servers, (1,), (5000, 20_000, 39_000, 80_000, 128_000), 207),
    }.get(scenario, ("topologies", (*routers, servers[0]), (1, 8, 32), (128,), 32))
    return SweepSpec(
        name, targets=targets, concurrency=concurrency, prompt_lengths=lengths, tg=tg, duration_s=_LEVEL_S
    )
