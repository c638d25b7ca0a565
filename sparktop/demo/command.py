"""The demo command: starts simulated servers; shows them in the viewer or prints a configuration for them."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import FrameType

from sparktop.demo.cluster import DemoCluster
from sparktop.demo.plan import KEY, KEY_VARIABLE
from sparktop.demo.presets import demo_sweeps
from sparktop.demo.visitors import QUIET_S
from sparktop.ending import ENDING
from sparktop.errors import OutputError, SparktopError
from sparktop.model.targets import ModelFacts, RouterTarget, SweepSettings, Watch
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
