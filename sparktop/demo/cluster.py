"""Starts and stops the processes of the demo."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from contextlib import suppress
from itertools import islice
from types import TracebackType
from typing import Self

from msgspec import Struct
from msgspec.structs import replace

from sparktop.demo.plan import KEY, Plan
from sparktop.demo.scenario import DEFAULT_SCENARIO, SCENARIOS, Scenario, backend_name
from sparktop.demo.visitors import QUIET_S
from sparktop.errors import SparktopError
from sparktop.model.targets import BackendTarget, NodeTarget, RouterTarget

_START_S = 30.0
"""Seconds to wait for a process to start: with aiohttp this takes half a second, and many times that on a
busy machine."""
_STOP_S = 3.0
_HOST = "127.0.0.1"


class _Child(Struct):
    """A child process of the demo, and what it runs: "engines", "proxy" or "load"."""

    part: str
    process: subprocess.Popen[bytes]

    def end_input(self) -> None:
        """Close the pipes to the process; the end of its standard input makes the process end."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


class DemoCluster:
    """Context manager that runs the demo's servers, machines, proxy and load as child processes.

    Each child process has its own session, so that Ctrl+C in the terminal reaches only the viewer. If this
    process ends in any way, the child processes end too: their standard input ends, and the kernel sends them
    a signal. The demo's load pauses while other clients send requests. The servers report these requests to
    the load's process through a pipe.
    """

    def __init__(
        self,
        *,
        backends: int = 2,
        seed: int = 0,
        scenario: str = DEFAULT_SCENARIO,
        strategy: str | None = None,
        load: int | None = None,
        quiet_s: float = QUIET_S,
    ) -> None:
        """Store the settings; entering the context starts the processes.

        `backends` is the number of servers behind the proxy. `strategy` and `load` (requests in flight)
        replace those of the scenario; a load of 0 sends no requests. The load resumes `quiet_s` seconds after
        the last request of another client.
        """
        self._quiet_s = quiet_s
        self._scenario = SCENARIOS[scenario]
        self._backends = backends
        self._seed = seed
        self._strategy = strategy
        self._load = load
        self._children: list[_Child] = []
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
        return self._scenario.name

    @property
    def pid(self) -> int:
        """Process id of the process that simulates all engines."""
        return self.pids[0]

    @property
    def pids(self) -> tuple[int, ...]:
        """Ids of the processes in the order engines, proxy, load; without the last if the load is 0.

        Raises:
            SparktopError: the processes are not running.
        """
        if not self._children:
            raise SparktopError("the simulated servers are not running")
        return tuple(child.process.pid for child in self._children)

    def __enter__(self) -> Self:
        """Start the processes and wait until all of them are ready.

        Raises:
            SparktopError: a process did not start.
        """
        plan = Plan(
            self._scenario.name,
            self._backends,
            self._seed,
            self._strategy,
            self._load,
            quiet_s=self._quiet_s,
        )
        try:
            self._start(plan)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the processes."""
        self._stop()

    def _start(self, plan: Plan) -> None:
        # All are spawned at once, since each takes equally long to start; each gets its plan when the servers
        # that it needs are ready.
        servers, load = plan, plan
        if plan.chosen().load:
            reading, writing = os.pipe()
            servers, load = replace(plan, visitors=writing), replace(plan, visitors=reading)
            try:
                self._children = [
                    *(_Child(part, _spawn(part, writing)) for part in ("engines", "proxy")),
                    _Child("load", _spawn("load", reading)),
                ]
            finally:
                os.close(reading)
                os.close(writing)
        else:
            self._children = [_Child(part, _spawn(part)) for part in ("engines", "proxy")]
        self._begin_all(servers, load, time.monotonic() + _START_S)

    def _begin_all(self, servers: Plan, load: Plan, deadline: float) -> None:
        ports_of = self._begin(self._children[0], servers, deadline)
        self._note_engines(ports_of["engines"], ports_of["agents"])
        urls = tuple(target.url for target in self.targets[: self._backends])
        ports = self._begin(self._children[1], replace(servers, urls=urls), deadline)["proxies"]
        self._note_proxies([f"http://{_HOST}:{port}" for port in ports], servers.chosen())
        for child in self._children[2:]:
            self._begin(child, replace(load, urls=(self.routers[0].url,)), deadline)

    def _note_engines(self, ports: list[int], agents: list[int]) -> None:
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
            for server, port in zip(self._scenario.servers(self._backends), ports, strict=True)
        )
        self.nodes = tuple(
            NodeTarget(host, via="agent", url=f"http://{_HOST}:{port}")
            for host, port in zip(hosts, agents, strict=True)
        )

    def _note_proxies(self, urls: list[str], scenario: Scenario) -> None:
        names = tuple(target.name for target in self.targets[: self._backends])
        other = scenario.second_strategy
        self.routers = (RouterTarget("proxy", urls[0], scenario.strategy, names, api_key=KEY),)
        self.rivals = (RouterTarget(other, urls[1], other, names, api_key=KEY),)

    def _begin(self, child: _Child, plan: Plan, deadline: float) -> dict[str, list[int]]:
        """Send a plan to a child process; return the ports that the process reports, by type of server.

        The process reports once it is ready. `deadline` is a monotonic time in seconds.

        Raises:
            SparktopError: the process failed to start, ended, or did not report before `deadline`.
        """
        stdin, stdout = child.process.stdin, child.process.stdout
        assert stdin is not None  # noqa: S101 - opened as pipes
        assert stdout is not None  # noqa: S101 - as above
        with suppress(BrokenPipeError):  # it has ended, and will not answer
            stdin.write(plan.line())
            stdin.flush()
        ready, _, _ = select.select([stdout], [], [], max(0.0, deadline - time.monotonic()))
        line = stdout.readline() if ready else b""
        if not line:
            what = "their process ended" if ready else f"no word for {_START_S:.0f} s"
            raise SparktopError(f"the simulated servers did not start ({child.part}): {what}")
        answer: dict[str, list[int]] = json.loads(line)
        if "error" in answer:
            raise SparktopError(f"the simulated servers did not start ({child.part}): {answer['error']}")
        return answer

    def _stop(self) -> None:
        children, self._children = self._children, []
        # The load first: if servers ended before their clients, they would have to break off answers.
        for child in reversed(children):
            child.end_input()
        for child in reversed(children):
            try:
                child.process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                with suppress(ProcessLookupError):
                    os.killpg(child.process.pid, 9)
                child.process.wait()


def _spawn(part: str, *pipes: int) -> subprocess.Popen[bytes]:
    # Failures are reported as JSON; other output would spoil the viewer's screen.
    return subprocess.Popen(  # noqa: S603 - our own module, no shell
        [sys.executable, "-P", "-m", "sparktop.demo.process", part],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        pass_fds=pipes,
    )
