"""Lines of commands without a screen: what does not answer, what answers again, nothing to watch."""

from __future__ import annotations

from sparktop.model.engine import LaneSample
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.targets import BackendTarget, NodeTarget, Watch
from sparktop.store import SourceKey, Store
from sparktop.watch.reachable import MOST_A_MINUTE, Reachability
from tests.store.conftest import page


class Reported:
    """A store, and the lines that were reported about it."""

    def __init__(self, watch: Watch) -> None:
        self.at = 100.0
        self.lines: list[str] = []
        self.store = Store(watch, clock=lambda: self.at)
        self.reachability = Reachability(self.store, watch, self.lines.append)

    def fail(self, name: str) -> None:
        """Let a server be down: it refuses five polls."""
        for _ in range(5):
            self.at += 1.0
            refused = Failure(FailureKind.REFUSED, f"nothing listens on \x1b[2J{name}", self.at)
            self.store.accept(SourceKey.backend(name), refused)


def test_each_change_of_what_answers_is_a_line() -> None:
    """A server that is down is named once, with a clean reason, and once when it answers again."""
    reported = Reported(Watch(backends=(BackendTarget("a", "http://10.0.0.1:8000"),)))
    reported.fail("a")
    reported.fail("a")
    (down,) = reported.lines
    assert down.startswith("a: nothing listens on ")
    assert "\x1b" not in down
    reported.at += 1.0
    reported.store.accept(SourceKey.backend("a"), page(reported.at, LaneSample("0")))
    assert len(reported.lines) == 2
    assert reported.lines[1].startswith("a: answers again after ")
    reported.reachability.end()
    reported.fail("a")
    assert len(reported.lines) == 2


def test_many_changes_at_once_are_counted() -> None:
    """Of many servers that go down at once, the first have a line each; the others are one number."""
    names = [f"spark-{number}" for number in range(MOST_A_MINUTE + 7)]
    reported = Reported(Watch(backends=tuple(BackendTarget(name, f"http://{name}:8000") for name in names)))
    for name in names:
        reported.fail(name)
    assert len(reported.lines) == MOST_A_MINUTE
    reported.reachability.look()
    assert reported.lines[-1] == "7 more changes: sparktop snapshot shows what does not answer"


def test_nothing_to_watch_is_said_once() -> None:
    """While searches have found no server, a line says what to do; a server that is found ends that."""
    reported = Reported(Watch(nodes=(NodeTarget("here"),), discover=("127.0.0.1",), source="x.toml"))
    reported.reachability.look()
    reported.reachability.look()
    (line,) = reported.lines
    assert line.startswith("no server is watched yet (x.toml); ")
    assert "[[backends]]" in line
    reported.store.note("discovery", "localhost: nothing to watch")
    assert reported.lines[1] == "discovery: localhost: nothing to watch"
    reported.store.add(BackendTarget("a", "http://10.0.0.1:8000"))
    reported.reachability.look()
    assert reported.lines[2] == "1 server is watched now"
