"""The snapshot command, with sources of the test."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from sparktop.colors.palette import palettes
from sparktop.commands import observation
from sparktop.commands import snapshot as snapshot_command
from sparktop.commands.observation import all_reported, wait_for, why_nothing
from sparktop.commands.snapshot import report
from sparktop.errors import OutputError, UnreachableError
from sparktop.model.engine import EngineSample, LaneSample
from sparktop.model.event import Event, Severity
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import NodeSample
from sparktop.model.router import LITELLM, RouterSample, RouterView
from sparktop.model.series import HistoryTable, Series
from sparktop.model.snapshot import BackendHistory, BackendView, NodeHistory, NodeView, Snapshot
from sparktop.model.targets import ARGUMENTS, BackendTarget, EventSettings, NodeTarget, RouterTarget, Watch
from sparktop.store import SourceKey, SourceKind, Store

WATCH = Watch(nodes=(NodeTarget("n"),), backends=(BackendTarget("b", "http://b:1"),))
NODE, BACKEND = SourceKey(SourceKind.NODE, "n"), SourceKey(SourceKind.BACKEND, "b")
REFUSED = Failure(FailureKind.REFUSED, "connection refused", 1.0)
Feed = Callable[[Store], None]


def good(store: Store) -> None:
    for at in (1.0, 2.0, 3.0):
        store.accept(NODE, NodeSample(at))
        store.accept(BACKEND, EngineSample(at, "vllm", (LaneSample("0", running=1.0),)))


def dead(store: Store) -> None:
    store.accept(NODE, REFUSED)
    store.accept(BACKEND, REFUSED)


def half(store: Store) -> None:
    """Feed the store with one sample, then send Ctrl+C."""
    store.accept(NODE, NodeSample(1.0))
    os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture
def fed(monkeypatch: pytest.MonkeyPatch) -> Callable[[Feed], list[str]]:
    """Return a function that replaces the monitor by one that calls a feed, and returns its calls."""

    def install(feed: Feed) -> list[str]:
        calls: list[str] = []

        class FakeMonitor:
            def __init__(self, watch: Watch, store: Store, ways: object) -> None:
                assert watch is not None
                assert ways is None
                self.store = store

            async def start(self) -> None:
                calls.append("start")
                feed(self.store)

            async def stop(self) -> None:
                calls.append("stop")

        monkeypatch.setattr(observation, "Monitor", FakeMonitor)
        return calls

    return install


def test_the_report_is_all_there_is_on_stdout(
    fed: Callable[[Feed], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Standard output has only JSON, as soon as every source has reported; the sources are stopped."""
    calls = fed(good)
    assert report(WATCH, seconds=None, form="json", output=None) == 0
    out, err = capsys.readouterr()
    data = json.loads(out)
    assert (data["nodes"][0]["ok"], data["backends"][0]["running"]) == (True, 1)
    assert err == ""
    assert calls == ["start", "stop"]


def test_when_nothing_answers_there_is_still_a_report(
    fed: Callable[[Feed], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """If nothing is reached, the report is printed nevertheless; the reasons follow, with exit code 3."""
    fed(dead)
    with pytest.raises(
        UnreachableError, match=r"reached: b: connection refused; n: connection refused$"
    ) as caught:
        report(WATCH, seconds=None, form="json", output=None)
    assert caught.value.exit_code == 3
    assert json.loads(capsys.readouterr().out)["backends"][0]["error"] == "connection refused"


@pytest.mark.parametrize(("discover", "code"), [((), 3), (("127.0.0.1",), 0)], ids=["server", "host"])
def test_this_machine_counts_only_if_a_target_names_it(
    discover: tuple[str, ...], code: int, fed: Callable[[Feed], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """That this machine answers is a success only if a target names it, not if a server's address adds it."""

    def half_dead(store: Store) -> None:
        store.accept(NODE, NodeSample(1.0))
        store.accept(NODE, NodeSample(2.0))
        store.accept(BACKEND, REFUSED)
        store.note("discovery", "nothing")

    fed(half_dead)
    watch = replace(WATCH, source=ARGUMENTS, discover=discover)
    if code:
        with pytest.raises(UnreachableError, match="b: connection refused"):
            report(watch, seconds=None, form="json", output=None)
    else:
        assert report(watch, seconds=None, form="json", output=None) == 0
    assert json.loads(capsys.readouterr().out)["nodes"][0]["ok"] is True


def test_a_report_goes_to_a_file(
    tmp_path: Path, fed: Callable[[Feed], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """With a file, standard output is empty."""
    fed(good)
    assert report(WATCH, seconds=None, form="txt", output=tmp_path / "x.txt") == 0
    assert capsys.readouterr().out == ""
    assert "backend" in (tmp_path / "x.txt").read_text(encoding="utf-8")


@pytest.mark.outside
@pytest.mark.parametrize(
    ("form", "start"), [("md", "## sparktop snapshot\n"), ("svg", "<svg "), ("html", "<!DOCTYPE html>\n")]
)
def test_each_format_is_all_there_is_on_stdout(
    form: str, start: str, fed: Callable[[Feed], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """For Markdown, SVG and HTML, standard output has one document and nothing else."""
    fed(good)
    assert report(WATCH, seconds=None, form=form, output=None) == 0
    out, err = capsys.readouterr()
    assert out.startswith(start)
    assert out.endswith("\n")
    assert not out.endswith("\n\n")
    assert err == ""


@pytest.mark.outside
@pytest.mark.parametrize("form", ["svg", "html"])
def test_the_screen_has_its_size_and_theme(
    form: str, fed: Callable[[Feed], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """The picture has the requested number of rows and the background of the theme."""
    fed(good)
    watch = replace(WATCH, theme="spark-light")
    assert report(watch, seconds=None, form=form, output=None, size=(80, 24)) == 0
    out = capsys.readouterr().out
    assert 'id="terminal-line-22"' in out
    assert 'id="terminal-line-24"' not in out
    assert palettes()["spark-light"].color("background") in out


def test_size_and_theme_are_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--size and --theme set the size and the theme of the picture."""
    given: list[tuple[str, object]] = []

    def fake_report(watch: Watch, *, size: tuple[int, int], **_: object) -> int:
        given.append((watch.theme, size))
        return 0

    monkeypatch.setattr(snapshot_command, "report", fake_report)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    arguments = argparse.ArgumentParser()
    snapshot_command.add_arguments(arguments)
    for words in (["b:1", "--size", "80x24", "--theme", "spark-light"], ["b:1"]):
        assert snapshot_command.run(arguments.parse_args(words)) == 0
    assert given == [("spark-light", (80, 24)), ("spark-dark", (120, 36))]


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path, fed: Callable[[Feed], list[str]]) -> None:
    """A file in a missing folder ends with exit code 1."""
    fed(good)
    with pytest.raises(OutputError) as caught:
        report(WATCH, seconds=None, form="txt", output=tmp_path / "no" / "x.txt")
    assert caught.value.exit_code == 1


def test_after_an_interrupt_the_report_is_partial(
    fed: Callable[[Feed], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """After Ctrl+C the report of what was seen is printed, with exit code 130."""
    calls = fed(half)
    assert report(WATCH, seconds=60.0, form="json", output=None) == 130
    out, err = capsys.readouterr()
    assert json.loads(out)["nodes"][0]["ok"] is True
    assert err == "sparktop: interrupted: the report is of what was seen until then\n"
    assert calls == ["start", "stop"]


def history(points: int) -> Series:
    made = HistoryTable(("value",))
    for at in range(points):
        made.append(float(at), {})
    return made.series()["value"]


def seen(backend_points: int, node_points: int, failure: Failure | None = None) -> Snapshot:
    backend = BackendView(
        "b", "", "g", failure=failure, history=BackendHistory(running=history(backend_points))
    )
    node = NodeView("n", "local", history=NodeHistory(cpu_percent=history(node_points)))
    return Snapshot(datetime(2026, 1, 1, tzinfo=UTC), 0.0, 1.0, 2.0, nodes=(node,), backends=(backend,))


@pytest.mark.parametrize(
    ("snapshot", "expected"),
    [
        (seen(3, 2), True),
        (seen(2, 2), False),
        (seen(3, 1), False),
        (seen(0, 2, REFUSED), True),
        (seen(0, 0), False),
    ],
    ids=["both", "backend for an interval", "node once", "failed", "nothing"],
)
def test_enough_is_two_intervals_or_a_failure(snapshot: Snapshot, *, expected: bool) -> None:
    """It is enough if every backend has been seen for two intervals or has failed."""
    assert all_reported(snapshot, WATCH) is expected


def test_a_router_must_have_told_once() -> None:
    """A router needs one answer or failure."""
    silent = RouterView("proxy", "http://p:4000")
    for router, enough in ((silent, False), (replace(silent, age_s=0.1), True)):
        assert all_reported(replace(seen(3, 2), routers=(router,)), WATCH) is enough
    failed = replace(silent, failure=REFUSED)
    assert all_reported(replace(seen(3, 2), routers=(failed,)), WATCH)
    assert "proxy: " in why_nothing(replace(seen(0, 0), routers=(failed,)))


def test_a_search_must_have_ended() -> None:
    """A search is complete once a server is found or the search has reported none."""
    watch = replace(WATCH, backends=(), discover=("host",))
    nothing = replace(seen(3, 2), backends=())
    note = Event(nothing.taken_at, Severity.INFO, "discovery", "host: nothing")
    assert not all_reported(nothing, watch)
    assert all_reported(replace(nothing, events=(note,)), watch)
    assert all_reported(seen(3, 2), watch)
    assert not all_reported(seen(1, 2), watch)


@pytest.mark.parametrize("listed", [{"target_files": ("a.json",)}, {"sparkrun": True}])
def test_servers_that_files_list_are_waited_for(listed: dict[str, Any]) -> None:
    """Listed servers are waited for until they answer, as nothing else announces them."""
    watch = replace(WATCH, backends=(), **listed)
    assert not all_reported(replace(seen(3, 2), backends=()), watch)
    assert all_reported(seen(3, 2), watch)


def test_a_router_without_servers_says_why() -> None:
    """A router that answers, but whose servers are not watched, is reported with this reason."""
    router = RouterView("proxy", "http://p:4000", age_s=0.1)
    nothing = replace(seen(3, 2), backends=(), routers=(router,))
    note = Event(
        nothing.taken_at, Severity.INFO, "proxy", "sends to http://h:1, which is not watched: refused"
    )
    file = replace(note, subject="target files", message="a.json: no such file")
    assert why_nothing(replace(nothing, events=(note, file))) == (
        "nothing could be reached: proxy: sends to http://h:1, which is not watched: refused; "
        "target files: a.json: no such file"
    )


def test_a_router_that_answers_is_something_reached(
    fed: Callable[[Feed], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """A LiteLLM router alone as TARGET, without a key for its deployments, ends with exit code 0."""
    watch = Watch(routers=(RouterTarget("proxy", "http://p:4000"),))
    fed(
        lambda store: store.accept(
            SourceKey(SourceKind.ROUTER, "proxy"), RouterSample(0.0, LITELLM, alive=True), 1.0
        )
    )
    assert report(watch, seconds=None, form="json", output=None) == 0
    assert json.loads(capsys.readouterr().out)["routers"][0]["ok"] is True


async def test_waiting_ends_at_its_limit() -> None:
    """Waiting ends at its time limit."""
    times = iter([0.0, 1.0, 4.99, 5.0])
    await wait_for(lambda: False, 5.0, asyncio.Event(), clock=lambda: next(times))
    assert next(times, None) is None


async def test_waiting_ends_when_all_is_told() -> None:
    """Waiting ends at once if everything has been reported."""
    await wait_for(lambda: True, 5.0, asyncio.Event(), clock=lambda: 0.0)


@pytest.mark.parametrize(("seconds", "sends"), [(None, False), (10.0, False), (60.0, True)])
async def test_only_a_long_observation_delivers_events(
    seconds: float | None,
    sends: bool,  # noqa: FBT001 - a case
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only a long observation delivers events: a short one would announce known conditions again."""
    seen: list[Watch] = []

    class NoMonitor:
        """A monitor that reads nothing."""

        def __init__(self, watch: Watch, store: object, *, ways: object) -> None:
            seen.append(watch)
            assert store is not ways

        async def start(self) -> None:
            """Start nothing."""

        async def stop(self) -> None:
            """Stop nothing."""

    async def no_time(*_: object, **__: object) -> None:
        pass

    monkeypatch.setattr(observation, "Monitor", NoMonitor)
    monkeypatch.setattr(observation, "wait_for", no_time)
    await observation.observe(replace(WATCH, events=EventSettings(hook=("x",))), seconds)
    assert (seen[0].events.hook == ("x",)) is sends
