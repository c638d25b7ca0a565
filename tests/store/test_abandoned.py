"""Work for nobody, from pages and machines' samples to the alert, live and from a recording."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from sparktop.engines import read_page
from sparktop.model.event import Alert
from sparktop.model.instant import Instant
from sparktop.model.node import NodeIdentity, NodeSample, Sockets, Workload, Workloads, end_marks
from sparktop.model.snapshot import Snapshot
from sparktop.model.targets import BackendTarget, NodeTarget, Watch
from sparktop.panels.board.events import value_texts
from sparktop.recording.records import call_of, record_of
from sparktop.store import SourceKey
from sparktop.store.store import Call, Change
from tests.known import known
from tests.store.conftest import World

WATCH = Watch(
    nodes=(NodeTarget("spark-1", via="ssh", ssh="spark-1"),),
    backends=(BackendTarget("b", "http://spark-1:8000", engine="vllm", nodes=("spark-1",)),),
)
OWN, CLIENT = end_marks("10.0.0.9", 50123), end_marks("10.0.0.7", 40001)
B, NODE = SourceKey.backend("b"), SourceKey.node("spark-1")
PAGE = """\
vllm:num_requests_running{{engine="0",model_name="m"}} {running}
vllm:num_requests_waiting{{engine="0",model_name="m"}} 0.0
vllm:generation_tokens_total{{engine="0",model_name="m"}} {tokens}
vllm:request_success_total{{engine="0",model_name="m",finished_reason="stop"}} 7.0
http_requests_total{{handler="/v1/{api}",method="POST",status="2xx"}} 7.0
"""


class Recorded:
    """A journal that makes each call anew from its record."""

    def __init__(self) -> None:
        """Start without calls."""
        self.calls: list[tuple[Instant, Call]] = []

    def write(self, instant: Instant, call: Call) -> None:
        """Keep what a recording would give back."""
        if call.change in {Change.ACCEPT, Change.JUDGE} and (record := record_of(instant, call)) is not None:
            self.calls.append((instant, call_of(record) or call))


class Stage(World):
    """A store, its clock, and a server on one machine."""

    def __init__(self, journal: Recorded | None = None, api: str = "chat/completions") -> None:
        """Start at 1000 s; `api` is what clients have asked until then."""
        super().__init__(WATCH, journal=journal)
        self.api = api

    def play(
        self,
        seconds: int,
        clients: tuple[tuple[int, int], ...],
        asked_s: tuple[float | None, ...] = (),
        running: int = 3,
    ) -> None:
        """Go on for some seconds while these clients are connected; `asked_s` of `Sockets`, without OWN."""
        for _ in range(seconds):
            self.at += 1.0
            page = PAGE.format(tokens=20 * self.at, api=self.api, running=running).encode()
            read = read_page(page, at=self.at, engine="vllm", answer_ms=2.0)
            self.store.accept(B, replace(read, client=OWN), 2.0)
            if self.at % 2 == 0:
                sockets = Sockets((OWN, *clients), asked_s=(0.5, *asked_s))
                server = Workload(100, "vllm", "server", port=8000, server=100, sockets=sockets)
                age_s = self.at % 10
                loads = Workloads((server,), age_s=age_s)
                self.store.accept(NODE, NodeSample(self.at, workloads=loads), 2.0)
                self.store.identify(NODE, NodeIdentity(hostname="spark-1"))
            self.store.judge()

    def alerts(self) -> list[Alert]:
        """Return the alerts of now."""
        return [one for one in self.store.snapshot().alerts if "nobody" in one.id]


def test_an_alert_names_requests_that_run_for_nobody() -> None:
    """It begins half a minute after the client has left, with tokens since, and ends when one is back."""
    stage = Stage()
    stage.play(30, (CLIENT,))
    assert stage.alerts() == []
    stage.play(70, ())
    (alert,) = stage.alerts()
    assert (alert.id, alert.values["running_requests"]) == ("backend:b:for-nobody", 3.0)
    assert 30 <= float(alert.values["window_s"] or 0) <= 70
    assert alert.values["tokens_since"] == 20 * float(alert.values["window_s"] or 0)
    assert "works for nobody: 3 requests, 0 connections for 1 min" in alert.message
    lasted_s = stage.store.snapshot().at - known(alert.since_s)
    assert abs(lasted_s - float(alert.values["window_s"] or 0)) <= 1
    unseen_s = (known(alert.worst_since) - alert.since).total_seconds()
    assert 30 <= unseen_s < lasted_s, "the screen named nothing until then"
    assert [*value_texts(alert.values, alert.message)][1:] == [
        "0 connections of monitors",
        "alert after 30 s",
    ]
    stage.play(4, (CLIENT,), running=4)
    assert stage.alerts() == []
    said = stage.store.snapshot().events[-1].message
    assert said.endswith("works for nobody, unknown now (requests with a client run beside them)")


def test_a_second_monitor_is_no_client() -> None:
    """Who asks again and again beside requests that run does not wait for them; who asked once, does."""
    stage = Stage()
    stage.play(90, (CLIENT,), (0.25,))
    (alert,) = stage.alerts()
    assert "works for nobody: 3 requests, 0 clients (monitors: 1) for" in alert.message
    assert (alert.values["connections"], alert.values["monitor_connections"]) == (0.0, 1.0)
    for asked_s in ((500.0,), ()):
        stage = Stage()
        stage.play(90, (CLIENT,), asked_s)
        assert stage.alerts() == []


def test_what_may_run_in_the_background_is_no_alert() -> None:
    """Where the server has taken requests of the Responses API, their clients may ask for answers later."""
    stage = Stage(api="responses")
    stage.play(100, ())
    assert stage.alerts() == []
    (server,) = stage.store.snapshot().backends
    (finding,) = server.findings
    assert finding.line.startswith("no client: 3 requests, 0 connections for 1 min")
    assert finding.line.endswith("perhaps in the background")
    assert (
        "in the background",
        "7 requests of the Responses API since its start",
    ) in finding.evidence


def test_a_recording_gives_the_same_findings() -> None:
    """Whose connection a page came by is part of its record."""
    journal = Recorded()
    live = Stage(journal)
    live.play(100, ())
    again = Stage()
    for instant, call in journal.calls:
        again.at = instant.at
        getattr(again.store, call.change.value)(*call.arguments)
    assert found(live.store.snapshot()) == found(again.store.snapshot()) != ()


def found(snapshot: Snapshot) -> tuple[str, ...]:
    return tuple(one.line for one in snapshot.backends[0].findings)


@pytest.mark.parametrize("client", ["ten", [1], [1, "b"]])
def test_a_record_of_another_form_is_refused(client: object) -> None:
    """A page whose client is not two numbers is no reading."""
    read = read_page(PAGE.format(running=3, tokens=1, api="models").encode(), at=1.0, engine="vllm")
    record = known(record_of(Instant(1.0, datetime.now(UTC)), Call(Change.ACCEPT, (B, read, None))))
    record.fields["client"] = client  # type: ignore[index]  # a dict here
    with pytest.raises(Exception, match="client"):
        call_of(record)
