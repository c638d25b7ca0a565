"""A sweep of another process is known to the monitor beside it, by a file that can be trusted."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparktop.model.targets import BackendTarget, RouterTarget, Watch
from sparktop.store import Store
from sparktop.watch import state_files
from sparktop.watch.state_files import announced_loads, follow_announced
from tests.known import known

pytestmark = pytest.mark.process

URL = "http://127.0.0.1:8000"


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return an environment with a state folder of its own, and set it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return {"XDG_STATE_HOME": str(tmp_path)}


@pytest.fixture
def other(env: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Run a process that announces load on `URL` until its input closes."""
    code = (
        "import sys; from sparktop.watch.state_files import announced_load\n"
        f"with announced_load(['{URL}'], None): print('on', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(  # noqa: S603 - our own interpreter
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **env},
    ) as process:
        assert known(process.stdout).readline() == "on\n"
        yield process
        if process.stdin is not None and not process.stdin.closed:
            process.stdin.close()


def followed(store: Store, rounds: int, look: Callable[[int], object]) -> list[object]:
    """Follow what is announced for some rounds; return what `look` finds after each, given its number."""
    found: list[object] = []

    async def turn(_: float) -> None:
        found.append(look(len(found)))
        if len(found) == rounds:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(follow_announced(store, turn))
    return found


def test_the_load_of_a_living_process_is_known_and_ends_with_it(
    env: dict[str, str], other: subprocess.Popen[str]
) -> None:
    """Its file names its targets; after its end, also by a signal that leaves the file, there is no load."""
    assert announced_loads(env) == {other.pid: (URL,)}
    other.kill()
    other.wait(30)
    assert list(Path(env["XDG_STATE_HOME"]).rglob("*.json"))
    assert announced_loads(env) == {}


@pytest.mark.parametrize(
    "content",
    ["{", "[" * 9000, json.dumps({"pid": os.getppid(), "targets": 3})],
)
def test_a_file_that_is_no_announcement_is_ignored(env: dict[str, str], content: str) -> None:
    """Whatever lies in the folder, it is neither believed nor an error."""
    folder = Path(env["XDG_STATE_HOME"], "sparktop", "load")
    folder.mkdir(parents=True)
    (folder / "7.json").write_text(content)
    assert announced_loads(env) == {}


def test_files_that_others_may_write_and_other_hosts_are_ignored(
    env: dict[str, str], other: subprocess.Popen[str]
) -> None:
    """Only a private file of this user on this machine counts, and no link to one."""
    (path,) = Path(env["XDG_STATE_HOME"]).rglob("*.json")
    path.chmod(0o666)
    assert announced_loads(env) == {}
    path.chmod(0o600)
    assert len(announced_loads(env)) == 1
    moved = path.rename(path.with_name("target"))
    path.symlink_to(moved)
    assert announced_loads(env) == {}
    path.unlink()
    content = json.loads(moved.read_text()) | {"host": f"not-{socket.gethostname()}"}
    path.write_text(json.dumps(content))
    path.chmod(0o600)
    assert announced_loads(env) == {}
    assert other.poll() is None


def test_the_monitor_beside_a_sweep_knows_whose_load_it_is(
    other: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The servers that it loads are in a sweep, which an event says, until it ends."""
    watch = Watch(
        backends=(BackendTarget("a", URL), BackendTarget("b", "http://127.0.0.1:8001")),
        routers=(RouterTarget("proxy", "http://127.0.0.1:4000"),),
    )
    store = Store(watch)

    def in_sweep(number: int) -> list[str]:
        names = [view.name for view in store.snapshot().backends if view.in_sweep]
        if number == 0:
            known(other.stdin).close()
            other.wait(30)
        return names

    monkeypatch.setattr(state_files, "LOOK_EVERY_S", 0.0)
    assert followed(store, 2, in_sweep)[0] == ["a"]
    (event,) = store.snapshot().events
    assert event.message == f"load on a by a sweep of process {other.pid}"


def test_one_sweep_is_one_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where some of its servers are watched only later; another sweep of the same process is another."""
    store = Store(Watch(backends=(A,)))
    loads = iter([{7: (A.url, B.url)}, {7: (A.url, B.url)}, {7: (A.url, B.url, C.url)}])
    monkeypatch.setattr(state_files, "announced_loads", lambda: next(loads))

    def events(number: int) -> list[str]:
        messages = [event.message for event in store.snapshot().events]
        for target in (B, C)[number : number + 1]:
            store.add(target)
        return messages

    first, second = (f"load on {name} by a sweep of process 7" for name in "ac")
    assert followed(store, 3, events) == [[first], [first], [first, second]]


A, B, C = (
    BackendTarget(name, f"http://127.0.0.1:{port}") for name, port in (("a", 8000), ("b", 8001), ("c", 8002))
)


@pytest.mark.parametrize(
    ("loads", "ended"),
    [
        ([{7: (A.url,)}, {7: (B.url,)}, {}], [set(), set(), {"a", "b"}]),
        ([{7: (A.url, B.url), 8: (A.url,)}, {8: (A.url,)}, {}], [set(), {"b"}, {"a"}]),
    ],
    ids=["of one that goes on to another", "of two"],
)
def test_a_server_is_free_at_the_end_of_the_load(
    monkeypatch: pytest.MonkeyPatch, loads: list[dict[int, tuple[str, ...]]], ended: list[set[str]]
) -> None:
    """Also one that its process loads no more, should it be watched again; of two loads at the second's."""
    store = Store(Watch(backends=(A, B)))
    ends: list[frozenset[str]] = []
    rounds = iter(loads)
    monkeypatch.setattr(state_files, "announced_loads", lambda: next(rounds))
    monkeypatch.setattr(store, "end_own_load", ends.append)

    def ended_now(_: int) -> set[str]:
        names = set().union(*ends)
        ends.clear()
        return names

    assert followed(store, len(loads), ended_now) == ended
