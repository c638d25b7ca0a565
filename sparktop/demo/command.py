"""The demo command: starts simulated servers; shows them in the viewer or prints a configuration for them."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
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
    """Yield the lines of the file, with an empty one before each table."""
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
            key_words = f"{DEMO_KEY} is used, and lists its deployments"
            yield f'api_key_env = "{DEMO_KEY_VARIABLE}"  # need not be set: {key_words}'
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
"""Seconds to wait for the process to start: with aiohttp this takes half a second, and many times that on a
busy machine."""
_STOP_S = 3.0
"""Seconds that a process has to end before it is killed."""
_HOST = "127.0.0.1"


class DemoCluster:
    """Context manager that runs the demo's servers, machines, proxies and load as a child process.

    The child has its own session, so that Ctrl+C in the terminal reaches only the viewer. If this process
    ends in any way, the child ends too: its standard input ends, and the kernel sends it a signal.
    """

    def __init__(self, plan: DemoPlan | None = None) -> None:
        """Store what is to be simulated; entering the context starts the process."""
        self._plan = plan or DemoPlan()
        self._child: subprocess.Popen[bytes] | None = None
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
    def pid(self) -> int | None:
        """Id of the process; None before the start and after the end."""
        return None if self._child is None else self._child.pid

    def __enter__(self) -> Self:
        """Start the process and wait until all servers are ready.

        Raises:
            SparktopError: the servers did not start.
        """
        try:
            self._set_targets(self._start())
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self) -> dict[str, list[int]]:
        """Start the process and send it the plan; return the ports that it reports, by type of server.

        Raises:
            SparktopError: the process failed to start, ended, or reported nothing within `_START_S`.
        """
        # Failures are reported as JSON; other output would spoil the viewer's screen.
        self._child = subprocess.Popen(
            [sys.executable, "-P", "-m", "sparktop.demo.process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        stdin, stdout = self._child.stdin, self._child.stdout
        assert stdin is not None  # noqa: S101 - opened as pipes
        assert stdout is not None  # noqa: S101 - as above
        with suppress(BrokenPipeError):  # it has ended, and will not answer
            stdin.write(msgspec.json.encode(self._plan) + b"\n")
            stdin.flush()
        readable, _, _ = select.select([stdout], [], [], _START_S)
        line = stdout.readline() if readable else b""
        if not line:
            end_words = "their process ended" if readable else f"no word for {_START_S:.0f} s"
            raise SparktopError(f"the simulated servers did not start: {end_words}")
        answer: dict[str, list[int]] = json.loads(line)
        if "error" in answer:
            raise SparktopError(f"the simulated servers did not start: {answer['error']}")
        return answer

    def _set_targets(self, ports: Mapping[str, Sequence[int]]) -> None:
        scenario, backends = self._plan.effective_scenario(), self._plan.backends
        urls = {kind: [f"http://{_HOST}:{port}" for port in of_kind] for kind, of_kind in ports.items()}
        hosts = [backend_name(index) for index in range(len(urls["agents"]))]
        free_hosts = iter(hosts)
        self.targets = tuple(
            BackendTarget(
                server.name,
                url,
                engine="vllm",
                nodes=tuple(islice(free_hosts, server.machines)),
                slots=server.lanes * server.profile.max_num_seqs,
                capture_sizes=server.profile.capture_sizes,
            )
            for server, url in zip(scenario.servers(backends), urls["engines"], strict=True)
        )
        self.nodes = tuple(
            NodeTarget(host, via="agent", url=url) for host, url in zip(hosts, urls["agents"], strict=True)
        )
        names = tuple(target.name for target in self.targets[:backends])
        (proxy, rival), other = urls["proxies"], scenario.second_strategy
        self.routers = (RouterTarget("proxy", proxy, scenario.strategy, names, api_key=DEMO_KEY),)
        self.rivals = (RouterTarget(other, rival, other, names, api_key=DEMO_KEY),)

    def __exit__(self, *_: object) -> None:
        """End the process."""
        child, self._child = self._child, None
        if child is None:
            return
        for pipe in (child.stdin, child.stdout):  # the end of its input makes the process end
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        try:
            child.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, 9)
            child.wait()


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
    # By scenario: name, targets, concurrency, prompt lengths and tokens to generate.
    sweeps = {
        # As in spark-topologies-2026-03: its concurrency, lengths and columns.
        "topologies": (
            "topologies",
            (servers[0], servers[-1], *routers),
            (1, 2, 4, 8, 16, 32, 64),
            (1024,),
            128,
        ),
        "recipes": ("recipes", servers, (1, 2, 4, 5, 8, 10, 16), (2048,), 128),
        # Up to 39,000 as in spark-dgx-benchmark; the second server refuses prompts beyond its context.
        "long-context": ("long-context", servers, (1,), (5000, 20_000, 39_000, 80_000, 128_000), 207),
    }
    usual = ("topologies", (*routers, servers[0]), (1, 8, 32), (128,), 32)
    name, targets, concurrency, lengths, tg = sweeps.get(scenario, usual)
    return SweepSpec(
        name, targets=targets, concurrency=concurrency, prompt_lengths=lengths, tg=tg, duration_s=_LEVEL_S
    )
