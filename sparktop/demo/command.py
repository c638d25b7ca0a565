"""The demo command: starts simulated servers; shows them in the viewer or prints a configuration for them."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from types import FrameType, TracebackType
from typing import Self

from msgspec import Struct
from msgspec.structs import replace

from sparktop.demo.scenario import (
    DEFAULT_SCENARIO,
    KEY,
    KEY_VARIABLE,
    QUIET_S,
    SCENARIOS,
    Plan,
    Scenario,
    backend_name,
)
from sparktop.ending import ENDING
from sparktop.errors import OutputError, SparktopError
from sparktop.model.targets import BackendTarget, ModelFacts, NodeTarget, RouterTarget, SweepSettings, Watch
from sparktop.model.text import clean
from sparktop.simulation.calibration import BYTES_PER_TOKEN_GB, MODEL

_LOOKS_AT_REST = 3
"""The load resumes no sooner than this many poll intervals after another client's last request: a sweep sends
its next request only after two polls with equal results."""
_SERVE_CODES: dict[int, int] = {signal.SIGINT: 130, signal.SIGTERM: 0, signal.SIGHUP: 129}
"""Exit code of `demo --serve` by the signal that ended it."""


def run_demo(
    *,
    serve: bool,
    backends: int,
    seed: int,
    scenario: str,
    strategy: str | None,
    load: int | None,
    theme: str | None,
    interval_s: float | None,
    show: Callable[[Watch], int],
) -> int:
    """Start the simulated cluster and open the viewer with `show`; return the exit code.

    With `serve`, print a configuration for the cluster instead, and wait until a signal arrives or the
    terminal closes. `show` is a parameter because this package may not import anything that draws.

    Raises:
        SparktopError: the servers did not start.
    """
    poll_s = Watch().interval_s if interval_s is None else interval_s
    cluster = DemoCluster(
        backends=backends,
        seed=seed,
        scenario=scenario,
        strategy=strategy,
        load=load,
        quiet_s=max(QUIET_S, _LOOKS_AT_REST * poll_s),
    )
    with cluster:
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
    yield f"interval_s = {float(watch.interval_s)}"
    yield f"theme = {_quoted(watch.theme)}"
    for node in watch.nodes:
        yield from ("", "[[nodes]]", f"name = {_quoted(node.name)}", f"via = {_quoted(node.via)}")
        if node.url is not None:
            yield f"url = {_quoted(node.url)}"
    for backend in watch.backends:
        yield from ("", "[[backends]]", f"name = {_quoted(backend.name)}", f"url = {_quoted(backend.url)}")
        yield f"engine = {_quoted(backend.engine)}"
        if backend.slots is not None:
            yield f"slots = {backend.slots}"
        if backend.nodes:
            yield f"nodes = {_names(backend.nodes)}"
        if backend.capture_sizes is not None:
            yield f"cudagraph_capture_sizes = {list(backend.capture_sizes)}"
    for router in watch.routers:
        yield from _router_lines(router)
    for router in watch.sweep_routers:
        yield from (*_router_lines(router), "watched = false  # only sweeps load it")
    yield from _model_lines(watch)
    for sweep in watch.sweeps:
        yield from _sweep_lines(sweep)


def _model_lines(watch: Watch) -> Iterator[str]:
    for model, facts in watch.models.items():
        yield from ("", f"[models.{_quoted(model)}]", f"bytes_per_token_gb = {facts.bytes_per_token_gb}")


def _router_lines(router: RouterTarget) -> Iterator[str]:
    yield from ("", "[[routers]]", f"name = {_quoted(router.name)}", f"url = {_quoted(router.url)}")
    if router.strategy is not None:
        yield f"strategy = {_quoted(router.strategy)}"
    if router.backends:
        yield f"backends = {_names(router.backends)}"
    if router.api_key is not None:
        yield f'api_key_env = "{KEY_VARIABLE}"  # need not be set: {KEY} is used, and lists its deployments'


def _sweep_lines(sweep: SweepSettings) -> Iterator[str]:
    yield from ("", "[[sweeps]]", f"name = {_quoted(sweep.name)}")
    if sweep.key is not None:
        yield f"key = {_quoted(sweep.key)}"
    if sweep.targets:
        yield f"targets = {_names(sweep.targets)}"
    if sweep.concurrency:
        yield f"concurrency = {list(sweep.concurrency)}"
    if sweep.prompt_lengths:
        yield f"prompt_lengths = {list(sweep.prompt_lengths)}"
    for name in ("tg", "runs", "climb_to", "duration_s", "requests"):
        number = getattr(sweep, name)
        if number is not None:
            yield f"{name} = {number}"
    if sweep.more_runs:
        yield "more_runs = true"
    for name in ("mode", "order"):
        word = getattr(sweep, name)
        if word is not None:
            yield f"{name} = {_quoted(word)}"


def _names(names: tuple[str, ...]) -> str:
    return f"[{', '.join(map(_quoted, names))}]"


def _quoted(text: str) -> str:
    # JSON strings without control characters, which were removed, are valid TOML basic strings.
    return json.dumps(text, ensure_ascii=False)


def _serve(watch: Watch) -> int:
    """Print the configuration, then wait for a signal or the end of the terminal; return the exit code.

    Raises:
        OutputError: standard output cannot be written.
        SparktopError: a process of the simulated servers ended.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)

    def note(number: int, _: FrameType | None) -> None:
        if number in _SERVE_CODES:
            ENDING.begin(_SERVE_CODES[number])
        with suppress(BlockingIOError):
            os.write(writing, bytes([number]))

    wanted = [
        each for each in (*_SERVE_CODES, signal.SIGCHLD) if signal.getsignal(each) is not signal.SIG_IGN
    ]
    before = {each: signal.signal(each, note) for each in wanted}
    # Before anything is printed: a terminal that goes away after that is not a terminal any more.
    terminal = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
    try:
        _print(as_toml(watch))
        count = len(watch.backends)
        servers = "1 simulated server is" if count == 1 else f"{count} simulated servers are"
        sys.stderr.write(f"sparktop demo: {servers} ready; Ctrl+C ends\n")
        sys.stderr.flush()
        got = _first_signal(reading, terminal)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(reading)
        os.close(writing)
    if got == signal.SIGCHLD:
        raise SparktopError("the simulated servers ended")
    return _SERVE_CODES[got]


def _print(configuration: str) -> None:
    """Write the configuration to standard output.

    Raises:
        OutputError: the reader has closed the pipe, or the file system is full.
    """
    try:
        sys.stdout.write(configuration)
        sys.stdout.flush()
    except OSError as error:
        raise OutputError(f"standard output: {clean(error.strerror or error)}") from None


def _first_signal(noted: int, terminal: int | None) -> int:
    """Wait for a signal and return its number.

    The signal handler writes the number to a pipe, which is read through the file descriptor `noted`. If
    the terminal with the descriptor `terminal` is closed, even before this call, return SIGHUP.
    """
    ends = select.poll()
    ends.register(noted, select.POLLIN)
    if terminal is not None:
        # A session leader that waits for this process, such as make, does not pass the hang-up on.
        ends.register(terminal, 0)
    ready = [descriptor for descriptor, _ in ends.poll()]
    return os.read(noted, 1)[0] if noted in ready else signal.SIGHUP


# Starts and stops the processes of the demo.


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


# The sweeps that the demo adds to the built-in sweeps; each is started by its own function key.


_LEVEL_S = 11.0
"""Seconds per level: a little more than a valid level needs, because bursts in the demo take up to four
seconds."""


def demo_sweeps(
    backends: Sequence[BackendTarget],
    routers: Sequence[RouterTarget],
    rivals: Sequence[RouterTarget] = (),
    *,
    scenario: str = DEFAULT_SCENARIO,
) -> tuple[SweepSettings, ...]:
    """Return the demo's two sweeps: key f5 loads the router alone, f6 compares the scenario's targets.

    `rivals` are further routers for the comparison. Return () if there are no backends or no routers.
    """
    if not backends or not routers:
        return ()
    router = SweepSettings(
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
    return router, replace(_compared(scenario, servers, routed), key="f6")


_AGENTS_S = 60.0
"""Seconds of a level of agents: some calls of each."""


def _compared(scenario: str, servers: tuple[str, ...], routers: tuple[str, ...]) -> SweepSettings:
    """Return the sweep that compares a scenario's targets, which are named by `servers` and `routers`.

    For most scenarios, the targets are all routers and the first server.
    """
    if scenario == "topologies":
        # As in spark-topologies-2026-03: its concurrency, lengths and columns.
        return SweepSettings(
            "topologies",
            targets=(servers[0], servers[-1], *routers),
            concurrency=(1, 2, 4, 8, 16, 32, 64),
            prompt_lengths=(1024,),
            tg=128,
            duration_s=_LEVEL_S,
        )
    if scenario == "recipes":
        return SweepSettings(
            "recipes",
            targets=servers,
            concurrency=(1, 2, 4, 5, 8, 10, 16),
            prompt_lengths=(2048,),
            tg=128,
            duration_s=_LEVEL_S,
        )
    if scenario == "agents":
        return SweepSettings("agents at work", targets=servers[:1], agents=(2, 8), duration_s=_AGENTS_S)
    if scenario == "long-context":
        # Up to 39,000 as in spark-dgx-benchmark; the second server refuses prompts beyond its context.
        return SweepSettings(
            "long-context",
            targets=servers,
            concurrency=(1,),
            prompt_lengths=(5000, 20_000, 39_000, 80_000, 128_000),
            tg=207,
            duration_s=_LEVEL_S,
        )
    return SweepSettings(
        "topologies",
        targets=(*routers, servers[0]),
        concurrency=(1, 8, 32),
        prompt_lengths=(128,),
        tg=32,
        duration_s=_LEVEL_S,
    )
