"""The snapshot command, with sources of the test."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from sparktop.commands import observation
from sparktop.commands.snapshot import report
from sparktop.errors import UnreachableError
from sparktop.model.engine import EngineSample, LaneSample
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import NodeSample
from sparktop.model.router import RouterSample
from sparktop.model.targets import ARGUMENTS, BackendTarget, NodeTarget, RouterTarget, Watch
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


@pytest.fixture
def fed(monkeypatch: pytest.MonkeyPatch) -> Callable[[Feed], list[str]]:
    """Return a function that replaces the monitor by one that calls a feed, and returns its calls."""

    def install(feed: Feed) -> list[str]:
        calls: list[str] = []

        class FakeMonitor:
            def __init__(self, watch: Watch, store: Store, ways: object) -> None:
                assert ways is None
                self.store = store
                if watch.events.hook:
                    calls.append("deliver events")

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


@pytest.mark.parametrize("is_terminal", [False, True])
def test_when_nothing_answers_programs_still_get_a_report(
    fed: Callable[[Feed], list[str]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    is_terminal: bool,  # noqa: FBT001 - a parameter
) -> None:
    """If nothing is reached, the reasons are all that people see; exit code 3."""
    fed(dead)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    with pytest.raises(
        UnreachableError, match=r"reached: b: connection refused; n: connection refused$"
    ) as caught:
        report(WATCH, seconds=None, form="json", output=None)
    assert caught.value.exit_code == 3
    out = capsys.readouterr().out
    assert json.loads(out)["backends"][0]["error"] == "connection refused" if not is_terminal else out == ""


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


def test_a_router_that_answers_is_something_reached(
    fed: Callable[[Feed], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """A router alone as TARGET that answers is exit code 0, whether it names its servers or not."""

    def routed(store: Store) -> None:
        store.accept(SourceKey.router("r"), RouterSample(1.0, "litellm"))

    fed(routed)
    watch = Watch(routers=(RouterTarget("r", "http://r:4000"),), source=ARGUMENTS)
    assert report(watch, seconds=None, form="json", output=None) == 0
    assert [router["ok"] for router in json.loads(capsys.readouterr().out)["routers"]] == [True]


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
