"""Pure tests, and what holds them to it.

A test is pure where no mark says what it needs beyond this interpreter: `outside`, `process`, `live` or
`prometheus`. `make unit` runs the pure tests except those marked `long`. A pure test that opens a connection,
starts a process, draws a screen or lets real time pass fails wherever it runs, with the mark that it lacks:
so the choice cannot go stale.
"""

from __future__ import annotations

import functools
import gc
import inspect
import os
import selectors
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

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
SERVING = frozenset({"bench", "certificate", "make_shim", "serve", "server", "start_agent", "start_server"})
"""Fixtures that serve or start a helper: a test that asks for one is marked by that."""
SCREENS = Path(__file__).parent / "ui"


if (
    settings.get_current_profile_name() == "default"
):  # with CI set, Hypothesis' own profile has no deadline either
    settings.register_profile("default", deadline=None)
    settings.load_profile("default")
settings.register_profile("quick", max_examples=10, deadline=None)
"""For `make unit`; `make test` draws the full number of examples."""


class NotPureError(AssertionError):
    """A test without a mark left the interpreter."""


def _threads() -> set[int | None]:
    """Return the threads that the module `threading` knows: not the timer of `sparktop.ending`."""
    return {thread.ident for thread in threading.enumerate()}


class Guard:
    """What the running test did that no pure test may do."""

    def __init__(self) -> None:
        """Hold nothing until a pure test runs."""
        self._held = False
        self._waited_s = 0.0
        self._found: list[str] = []
        self._strangers: set[int | None] = set()

    @contextmanager
    def holding(self) -> Generator[None]:
        """Hold what runs inside; what it did counts where its error was swallowed, too."""
        # What a thread that an earlier test left behind does is not this test's.
        self._strangers = _threads() - {threading.get_ident()}
        self._held, self._waited_s, self._found = True, 0.0, []
        try:
            yield
        finally:
            self._held = False
        if self._found:
            raise NotPureError(self._found[0])

    def forbid(self, what: str) -> None:
        """Raise where a pure test runs."""
        if self._held:
            self._fail(what)

    def wait(self, wait_s: float) -> None:
        """Count time that is waited away."""
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


Wrapper = Callable[[Callable[..., Any]], Callable[..., Any]]


def _wrap(owner: object, name: str, wrapper: Wrapper) -> None:
    setattr(owner, name, wrapper(getattr(owner, name)))


def _forbidden_as(what: str) -> Wrapper:
    """Return what makes a function forbidden to pure tests."""

    def wrapper(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: object, **named: object) -> object:
            guard.forbid(what)
            return function(*args, **named)

        return call

    return wrapper


def _counted_sleep(sleep: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(sleep)
    def call(wait_s: float) -> None:
        guard.wait(wait_s)
        sleep(wait_s)

    return call


def _counted_select(select: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """Return the wait of an event loop, counted where a timer ended it: a thread's answer is no timer."""

    @functools.wraps(select)
    def call(selector: object, timeout: float | None = None) -> list[Any]:
        ready = select(selector, timeout)
        if timeout and not ready:
            guard.wait(timeout)
        return ready

    return call


def pytest_configure() -> None:
    """Put the guard in place, once a process."""
    sys.addaudithook(_watch_events)
    _wrap(time, "sleep", _counted_sleep)
    _wrap(os, "openpty", _forbidden_as("os.openpty"))
    _wrap(selectors.DefaultSelector, "select", _counted_select)


def _asks_for_a_server(item: pytest.Function) -> bool:
    return not SERVING.isdisjoint(item.fixturenames)


def _on_screen(item: pytest.Function) -> bool:
    """Return whether it is a coroutine of the user interface's tests: those drive the application."""
    return item.path.is_relative_to(SCREENS) and inspect.iscoroutinefunction(item.function)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what asks for a server and what drives a screen, before marks select what runs."""
    for item in items:
        if isinstance(item, pytest.Function) and (
            SERVING.intersection(item.fixturenames) or _on_screen(item)
        ):
            item.add_marker("outside")


def pytest_collection_finish() -> None:
    """Guard the screens, where a collected test has imported them, and freeze what stays until the end.

    The collected tests are half a million objects; a full garbage collection among them takes 0.4 s.
    """
    if (screens := sys.modules.get("textual.app")) is not None:
        for name in ("run_async", "run_test"):
            _wrap(screens.App, name, _forbidden_as("a screen"))
    gc.collect()
    gc.freeze()


def is_pure(item: pytest.Item) -> bool:
    """Return whether no mark says what the test needs."""
    return not any(item.get_closest_marker(name) for name in IMPURE)


@contextmanager
def _held(item: pytest.Item) -> Generator[None]:
    if not is_pure(item):
        yield
        # What reads a machine goes on in the background; the next test may be pure.
        for thread in threading.enumerate():
            if thread.name == "sparktop-last-boot":
                thread.join(10)
        return
    with guard.holding():
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """Hold the fixtures of a pure test."""
    with _held(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Hold a pure test."""
    with _held(item):
        return (yield)
