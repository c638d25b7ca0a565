"""Fixtures of all tests, and a guard that fails a pure test which leaves the interpreter.

A test is pure if it has none of the marks that say what it needs beyond this interpreter: `outside`,
`process`, `live` or `prometheus`. `make unit` runs the pure tests except those marked `long`. A pure test
that opens a connection, starts a process, draws a screen or waits in real time fails wherever it runs; the
error names the missing mark. So the selection of `make unit` cannot become outdated.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import importlib
import inspect
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn
from weakref import WeakSet

import pytest
from hypothesis import settings

IMPURE = ("outside", "process", "live", "prometheus")
FORBIDDEN_EVENTS = frozenset(
    {
        "os.exec",
        "os.fork",
        "os.forkpty",
        "os.posix_spawn",
        "os.system",
        "socket.bind",
        "socket.connect",
        "socket.getaddrinfo",
        "socket.sendmsg",
        "socket.sendto",
        "subprocess.Popen",
    }
)
"""Audit events of the interpreter; an event loop's own pair of sockets raises none of them."""
LONGEST_WAIT_S = 0.1
_ASKED_AGAIN_S = 5.0
SERVING = frozenset({"bench", "certificate", "serve", "server", "shim", "start_agent", "start_server"})
"""Fixtures that serve or start a helper: a test that asks for one is marked by that."""
SCREENS = Path(__file__).parent / "ui"
FIRST_FILES = (
    "tests/test_shown_commands.py",
    "tests/ui/screens/test_sweep_editor.py",
    "tests/recording/test_replay.py",
    "tests/ui/test_fuzz.py",
    "tests/sweep/test_own_requests.py",
    "tests/benchmarks/test_truth_table.py",
    "tests/sweep/run/test_leave.py",
    "tests/ui/screens/test_menu.py",
    "tests/ui/test_keys_at_large.py",
    "tests/ui/test_wall.py",
    "tests/watch/prometheus/test_other_servers.py",
    "tests/test_house_rules.py",
    "tests/ui/screens/test_help.py",
    "tests/agent/test_prometheus_scrape.py",
)
"""Files with few tests that take above 10 s together, the longest first: a worker that began one of them last
would end long after the others."""
SPREAD = ("tests/test_shown_commands.py::test_every_command_runs", "tests/ui/test_fuzz.py::")
"""Beginnings of the ids of tests that take up to half a minute each, and need not run in one process."""
DRAWN_S, QUIET_ROUNDS = 0.02, 3
"""Longer than a sixtieth of a second, after which Textual draws; rounds of an event loop without any work."""


if (profile := settings.get_current_profile_name()) in {"default", "ci"}:  # "ci": where CI is set
    settings.register_profile("full", settings.get_profile(profile), max_examples=50, deadline=None)
    settings.load_profile("full")
settings.register_profile("quick", max_examples=10, deadline=None)
"""For `make unit`; `make test` draws the full number of examples, others each time."""


class NotPureError(AssertionError):
    """A test without a mark left the interpreter."""


def _threads() -> set[int | None]:
    """Return the ids of the threads that `threading` knows (not that of the timer of `sparktop.stopping`)."""
    return {thread.ident for thread in threading.enumerate()}


class Guard:
    """Records what the running test did that is forbidden in a pure test."""

    def __init__(self) -> None:
        """Start without a guarded test."""
        self._held = False
        self._waited_s = 0.0
        self._found: list[str] = []
        self._strangers: set[int | None] = set()

    @contextmanager
    def holding(self) -> Generator[None]:
        """Guard the test that runs in this context; a violation counts even if the test caught its error."""
        # Threads that earlier tests left behind do not count for this test.
        self._strangers = _threads() - {threading.get_ident()}
        self._held, self._waited_s, self._found = True, 0.0, []
        try:
            yield
        finally:
            self._held = False
        if self._found:
            raise NotPureError(self._found[0])

    def forbid(self, what: str) -> None:
        """Raise `NotPureError` if a pure test is running, unless a thread of an earlier test asks."""
        if self._held and threading.get_ident() not in self._strangers:
            self._fail(what)

    def wait(self, wait_s: float) -> None:
        """Add `wait_s` to the time that the pure test has waited; raise `NotPureError` if it is too much."""
        if not self._held or threading.get_ident() not in _threads() - self._strangers:
            return
        self._waited_s += wait_s
        if self._waited_s > LONGEST_WAIT_S:
            self._fail(f"waits {self._waited_s:.2f} s of real time")

    def _fail(self, what: str) -> NoReturn:
        self._found.append(f"{what}: mark this test `outside` (or `process`), or take it away")
        raise NotPureError(self._found[-1])


guard = Guard()


def _watch_events(event: str, _: tuple[object, ...]) -> None:
    if event in FORBIDDEN_EVENTS:
        guard.forbid(event)


_hanging: WeakSet[object] = WeakSet()
"""Threads, and pools of threads, that were waited for in vain: they hang on purpose."""


def _at_work(loop: Any) -> set[object]:  # noqa: ANN401 - what an event loop has inside is no part of its type
    """Return the threads that read a file, and the pool of `asyncio.to_thread` if it has work."""
    working: set[object] = {one for one in threading.enumerate() if one.name == "file-reading"}
    pool = loop._default_executor
    if pool is not None and pool._idle_semaphore._value < len(pool._threads):
        working.add(pool)
    return working.difference(_hanging)


async def _settle(_: float = 0.0, max_sleep: float = 1.0) -> None:
    """Wait until the running loop has nothing to do for longer than a screen takes to draw what changed.

    Textual's own wait ends after 20 ms in which the process used less than one of its processor: for each key
    at least two of these, and many where other tests run beside it.
    """
    loop: Any = asyncio.get_running_loop()
    end, quiet = loop.time() + max_sleep, 0
    while quiet < QUIET_ROUNDS:
        due = min((one.when() for one in loop._scheduled if not one.cancelled()), default=end)
        wait_s = due - loop.time()
        quiet = 0 if loop._ready or wait_s < DRAWN_S or _at_work(loop) else quiet + 1
        if loop.time() > end:
            _hanging.update(_at_work(loop))
            return
        await asyncio.sleep(0 if quiet or loop._ready else max(0.0, min(wait_s, 0.002)))


Wrapper = Callable[[Callable[..., Any]], Callable[..., Any]]


def _wrap(owner: object, name: str, wrapper: Wrapper) -> None:
    setattr(owner, name, wrapper(getattr(owner, name)))


def _forbidden_as(what: str) -> Wrapper:
    """Return a wrapper that forbids a function, described by `what`, to pure tests."""

    def wrapper(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: object, **named: object) -> object:
            guard.forbid(what)
            return function(*args, **named)

        return call

    return wrapper


def _asking_again(timeout_error: type[Exception]) -> Wrapper:
    """Return a wrapper of a pilot's wait for all widgets that asks again after a while, until pytest's limit.

    A widget that ends before it answers, such as a notice whose time is up, is waited for in vain; on a busy
    machine the others may need longer than Textual's 30 s.
    """

    def wrapper(wait_for_screen: Callable[..., Coroutine[None, None, bool]]) -> Callable[..., Any]:
        async def call(pilot: object) -> bool:
            while True:
                with suppress(timeout_error):
                    return await wait_for_screen(pilot, _ASKED_AGAIN_S)

        return call

    return wrapper


def _counted_sleep(sleep: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(sleep)
    def call(wait_s: float) -> None:
        guard.wait(wait_s)
        sleep(wait_s)

    return call


def _counted_select(select: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """Wrap an event loop's `select`: count waits that ended by timeout, not those that an event ended."""

    @functools.wraps(select)
    def call(selector: object, timeout: float | None = None) -> list[Any]:
        ready = select(selector, timeout)
        if timeout and not ready:
            guard.wait(timeout)
        return ready

    return call


def pytest_configure() -> None:
    """Install the guard, once per process; let programs that tests start hear SIGINT."""
    sys.addaudithook(_watch_events)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a background job of a script, and all below
        signal.signal(signal.SIGINT, signal.default_int_handler)
    _wrap(time, "sleep", _counted_sleep)
    _wrap(os, "openpty", _forbidden_as("os.openpty"))
    _wrap(selectors.DefaultSelector, "select", _counted_select)


def _on_screen(item: pytest.Function) -> bool:
    """Return whether the test is a coroutine below `tests/ui`, which drives the application."""
    return item.path.is_relative_to(SCREENS) and inspect.iscoroutinefunction(item.function)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Any:  # noqa: ANN401 - xdist is not typed
    """Return what gives workers a file at a time (`--dist loadfile`) in the order of collection.

    Tests that begin with one of `SPREAD` are given singly. None for another `--dist`.
    """
    if config.getoption("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False  # by the number of tests, those of half a minute would begin last
    scheduling: Any = importlib.import_module("xdist.scheduler").LoadFileScheduling(config, log)
    scheduling._split_scope = lambda test: test if test.startswith(SPREAD) else _file_of(test)
    return scheduling


def _file_of(test: str) -> str:
    return test.partition("::")[0]


def _order_longest_first(items: list[pytest.Item]) -> None:
    """Sort by file: first those of `FIRST_FILES`, then those with the most tests."""
    files = [_file_of(item.nodeid) for item in items]
    counts, ranks = Counter(files), {file: rank for rank, file in enumerate(FIRST_FILES)}
    keys = {file: (ranks.get(file, len(ranks)), -counts[file]) for file in counts}
    items.sort(key=lambda item: keys[_file_of(item.nodeid)])


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that use a server or drive a screen, before marks select which tests run.

    A worker of several sorts its tests, too.
    """
    if hasattr(config, "workerinput"):
        _order_longest_first(items)
    for item in items:
        if isinstance(item, pytest.Function) and (
            SERVING.intersection(item.fixturenames) or _on_screen(item)
        ):
            item.add_marker("outside")


def pytest_collection_finish() -> None:
    """Guard and prepare the screens if a collected test has imported them; freeze what lives until the end.

    The collected tests are half a million objects; a full garbage collection of these takes 0.4 s.
    """
    if (screens := sys.modules.get("textual.app")) is not None:
        for name in ("run_async", "run_test"):
            _wrap(screens.App, name, _forbidden_as("a screen"))
        pilot = importlib.import_module("textual.pilot")
        _wrap(pilot.Pilot, "_wait_for_screen", _asking_again(pilot.WaitForScreenTimeout))
        for module in (screens, pilot):
            _wrap(module, "wait_for_idle", lambda _: _settle)
    gc.collect()
    gc.freeze()


def is_pure(item: pytest.Item) -> bool:
    """Return whether the test has none of the marks that say what it needs."""
    return not any(item.get_closest_marker(name) for name in IMPURE)


@contextmanager
def _held(item: pytest.Item) -> Generator[None]:
    if not is_pure(item):
        yield
        # Readers of a machine continue in the background, and the next test may be pure.
        for thread in threading.enumerate():
            if thread.name == "sparktop-last-boot":
                thread.join(10)
        return
    with guard.holding():
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """Guard the fixtures of a pure test."""
    with _held(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Guard a pure test while it runs."""
    with _held(item):
        return (yield)


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Create a self-signed certificate for 127.0.0.1; return (certificate, key)."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    command += ["-nodes", "-days", "2", "-subj", "/CN=spark", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(  # noqa: S603 - openssl with words of this file
        [*command, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True, timeout=300
    )
    return cert, key
