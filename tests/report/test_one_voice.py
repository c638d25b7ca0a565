"""No two forms of one moment give a thing two names or two figures: screens and reports."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from sparktop.demo.scenario import SCENARIOS
from sparktop.model.balance import balance_cost
from sparktop.model.engine import Histogram
from sparktop.model.failure import FailureKind
from sparktop.model.node import MemoryPart
from sparktop.model.snapshot import Latency, LimitKind, Quantile, Snapshot
from sparktop.panels.board.bars import header_row
from sparktop.panels.board.events import events_screen
from sparktop.panels.board.scene import Scene, flatten
from sparktop.panels.board.view import View
from sparktop.panels.group.panel import balance_screen, evidence_screen
from sparktop.panels.machine.detail import node_detail
from sparktop.panels.parts.figures import latency_row
from sparktop.panels.parts.graph import TimeWindow
from sparktop.panels.parts.text import row_text
from sparktop.panels.server.detail import backend_detail
from sparktop.panels.server.router import router_panel
from sparktop.rates import histogram_latency
from sparktop.report import html, text_snapshot
from stage.rehearsal import Rehearsal, RouterPart
from tests.known import known
from tests.panels.balance_scenes import herd, traced

_WIDTHS = (80, 120, 200)
_POLLS = re.compile(r"judged on polls every (\S+) s")
_ALL_POLLS = re.compile(r"(?:- poll|servers polled every) (?:([\d.]+)(?:–| to ))?([\d.]+) s")
_VERDICT_IN = re.compile(r"verdict (?:on balance|[█-▏·]+) in (\d+) s")
_LEFT = re.compile(r"([\d.]+) GiB of memory left")
_EMPTY = re.compile(r"(\S+) (?:starves: )?(?:nearly empty|starves) (\d+) %")


def screens(shown: Snapshot) -> Iterator[tuple[str, str]]:
    """Yield (form, text) of every screen at several widths."""
    for width in _WIDTHS:
        height = {80: 22, 120: 34, 200: 48}[width]
        axis = TimeWindow(shown.at, 120.0).axis(60)
        scene = Scene(shown, width, height, View())
        drawn = {"board": flatten(scene.draw(), width, scene.layout.height)}
        drawn |= {"top line": [header_row(shown, width)]}
        for group in shown.balance:
            drawn[f"balance {group.group}"] = balance_screen(group, shown, width, height)
            drawn[f"why {group.group}"] = evidence_screen(group, shown, width, height)
        for view in shown.backends:
            drawn[f"server {view.name}"] = backend_detail(view, {}, width, height, axis)
        for node in shown.nodes:
            drawn[f"machine {node.name}"] = node_detail(node, shown.backends, width, height, axis)[0]
        yield from ((f"{form} {width}", "\n".join(map(row_text, rows))) for form, rows in drawn.items())


def reports(shown: Snapshot) -> Iterator[tuple[str, str]]:
    """Yield (form, text) of every report that is written of a moment."""
    yield "text", " ".join(text_snapshot.render(shown, 100).split())
    yield "markdown", text_snapshot.markdown(shown)
    yield "html", html.render(shown, "")


def forms(shown: Snapshot) -> dict[str, str]:
    return dict((*screens(shown), *reports(shown)))


@pytest.fixture(scope="module")
def queueing() -> Snapshot:
    """Two servers of which one has a queue, and the machine of the other, after almost three minutes."""
    return Rehearsal(seed=3).play(170).snapshot()


@pytest.mark.parametrize("name", ["cooldown-c64", "leastbusy-c16", "shuffle-c64", "herd"])
def test_a_group_has_one_poll_interval_and_one_share_of_each_backend(name: str) -> None:
    """Wherever they are named, polls are equally far apart and a backend is nearly empty for one share."""
    shown = herd(4) if name == "herd" else traced(name)
    shares, polls, of_all = defaultdict(set), defaultdict(set), set()
    for form, text in forms(shown).items():
        flat = " ".join(text.split())
        for backend, share in _EMPTY.findall(flat):
            shares[backend].add(share)
        polls[next(iter(_POLLS.findall(flat)), None)].add(form)
        of_all.update(_ALL_POLLS.findall(flat))
        assert not re.search(r"times a second|polled every \S+ s ·", flat), form
    assert len(polls.keys() - {None}) == 1
    ((shortest, longest),) = of_all
    assert {f"{shown.interval_s:g}", *polls.keys() - {None}} == {shortest or longest, longest}
    assert all(len(known) == 1 for backend, known in shares.items() if backend != "figures")


def test_a_verdict_is_expected_at_one_time() -> None:
    """Whatever names seconds to it names the same: two judgements must agree, however long it was watched."""
    for seconds in (8, 47):
        shown = Rehearsal(scenario=SCENARIOS["topologies"]).play(seconds).snapshot()
        flat = {form: " ".join(text.split()) for form, text in forms(shown).items()}
        left = {form: found for form, text in flat.items() if (found := set(_VERDICT_IN.findall(text)))}
        assert {"board 80", "top line 200", "why proxy 120", "text"} <= left.keys()
        assert len(set().union(*left.values())) == 1, left
        assert not [form for form, text in flat.items() if " s to go" in text]


def test_a_limit_names_the_cost_of_the_newest_verdict() -> None:
    """A panel's "proxy is oscillating, −14 % tok/s" has the loss of the balance, at every moment."""
    played, named = Rehearsal(scenario=SCENARIOS["cooldown"]), set()
    for _ in range(100):
        shown = played.play(1).snapshot()
        (group,) = shown.balance or (None,)
        limits = [view.limited_by.reason for view in shown.backends if view.limited_by]
        swings = [reason for reason in limits if "is oscillating" in reason]
        assert group is None or {reason.partition(", ")[2] for reason in swings} <= {balance_cost(group)}
        named |= {*swings}
    assert len(named) > 1


def test_a_limit_by_the_bandwidth_names_the_reads_that_stand_beside_it() -> None:
    """Verdicts are some seconds old, the figure of a server's reads is not."""
    played, named = Rehearsal(scenario=SCENARIOS["hot"]), set()
    for _ in range(60):
        for view in played.play(1).snapshot().backends:
            if view.limited_by is not None and view.limited_by.kind is LimitKind.BANDWIDTH:
                reads = f"reads {known(view.estimated_read_gb_per_s):.0f} of "
                assert view.limited_by.reason.startswith(reads)
                named.add(reads)
    assert len(named) > 12


def test_memory_left_has_one_figure_in_alerts_and_panels() -> None:
    """Except where it would be the limit that it is below, an alert rounds what is left as panels do."""
    played, named = Rehearsal(scenario=SCENARIOS["memory"]), set()
    played.play(130)
    for _ in range(40):
        shown = played.play(2).snapshot()
        left = [found[1] for alert in shown.alerts if (found := _LEFT.match(alert.message))]
        drawn = "\n".join(text for form, text in screens(shown) if form.startswith("machine"))
        assert {*left} <= {*re.findall(r"([\d.]+) GiB", drawn)} | {"7.9", "11.9"}
        named |= {*left}
    assert len(named) > 20


def test_shares_of_two_backends_add_up_or_say_why_not() -> None:
    """Beside "one or the other 88 %" stand shares that add up to it, or what they have beyond it."""
    for name in ("cooldown-c64", "leastbusy-c16", "leastbusy-c2"):
        shown = traced(name)
        (group,) = shown.balance
        rows = evidence_screen(group, shown, 120, 60)
        text = " ".join(" ".join(row_text(row).strip("│") for row in rows).split())
        head = re.search(r"one or the other (\d+) %", text)
        listed = re.search(r"more than its share: (\S+ (\d+) %)(?: · (\S+) (\d+) %)", text)
        if head is None or listed is None:
            continue
        added = int(listed[2]) + int(listed[4])
        assert abs(added - int(head[1])) <= 1 or "leave out the time since" in text


def test_a_part_of_the_memory_has_one_name(queueing: Snapshot) -> None:
    """The parts of the memory are called the same at every width and in every report."""
    parts = queueing.nodes[0].sample.memory.parts if queueing.nodes[0].sample else ()
    assert len(parts) > 5
    for form, text in forms(queueing).items():
        if form.startswith("machine") or form == "html":
            assert [part.title for part in parts if part.title not in text] == [], form
    assert {part.title for part in parts}.isdisjoint({"unattributed", "programs and kernel"})
    assert all(len(part.title) <= 9 for part in parts)
    assert MemoryPart("of tomorrow", 1).title == "of tomorrow"


def test_no_scale_of_a_graph_reads_as_a_value(queueing: Snapshot) -> None:
    """A scale is named from its lower end on: "0–300", never "max 300" or "GPU 100 %" above a graph."""
    for form, text in screens(queueing):
        assert not re.search(r"\bmax \d", text.replace("max 3.9 GHz", "").replace("max 2.8 GHz", "")), form
        assert not re.search(r"(GPU|CPU|memory) 100 % +(GPU|CPU|power|RDMA)", text), form


def test_words_of_servers_are_not_those_of_machines(queueing: Snapshot) -> None:
    """A machine's word names its GPU; a server is busy, bored or idle, and "bored" needs no "lately"."""
    board = dict(screens(queueing))["board 120"]
    assert re.search(r"node spark-a\W+GPU (idle|normal)\W", board)
    assert "bored lately" not in board


def test_a_mean_at_its_p95_says_why() -> None:
    """Mean and p95 that look alike, or the mean above it, are explained: a few were very long."""
    near = Latency(0.0993, Quantile(0.087), Quantile(0.09), Quantile(0.099), Quantile(0.2), 200.0)
    assert "(a few were very long)" in row_text(latency_row("ITL", near, 80))
    assert "long" not in row_text(latency_row("ITL", replace(near, mean_s=0.09), 80))


def test_what_does_not_answer_has_one_time() -> None:
    """Beside an alert since 18:04:12 no event of the same outage has the time at which it became one."""
    shown = Rehearsal(router=RouterPart(down_at_s=10)).play(30).snapshot()
    (alert,) = [alert for alert in shown.alerts if alert.subject == "proxy"]
    begins = [event for event in shown.events if event.about == alert.id]
    assert [event.at > alert.since for event in begins] == [True]
    again = replace(shown, events=(*shown.events, replace(begins[0], count=3, message="router down 3 times")))
    for moment in (shown, again):
        screen = "\n".join(map(row_text, events_screen(moment, 120, 30)))
        markdown = text_snapshot.markdown(moment).partition("### Events")[2]
        for text in (screen, markdown):
            assert f"{begins[0].at:%M:%S}" not in text
    assert f"since {alert.since.astimezone():%H:%M:%S}" in screen


_ROUTER_STATE = re.compile(r"\bproxy\W+(loading|unreachable|down|connecting|alive|answers)\b")


@pytest.mark.parametrize(
    ("down_at_s", "kind", "state"),
    [
        (None, None, "alive"),
        (10, FailureKind.UNREACHABLE, "unreachable"),
        (10, FailureKind.LOADING, "loading"),
    ],
)
def test_a_router_has_one_state_in_every_form(
    down_at_s: float | None, kind: FailureKind | None, state: str
) -> None:
    """The panel and the text, Markdown and HTML reports name the state of a router with the same word."""
    snapshot = Rehearsal(router=RouterPart(down_at_s=down_at_s)).play(20).snapshot()
    (router,) = snapshot.routers
    if kind is not None and router.failure is not None:
        router = replace(router, failure=replace(router.failure, kind=kind))
    panel = "\n".join(map(row_text, router_panel(router, 118, 4)))
    for form, text in (("panel", panel), *reports(replace(snapshot, routers=(router,)))):
        assert set(_ROUTER_STATE.findall(re.sub(r"</?[a-z][^>]*>", " ", text))) == {state}, form


def test_a_mean_alone_says_in_the_narrowest_panel_why_there_is_no_quantile() -> None:
    """As llama.cpp reports it; nothing is said of lanes, which it does not have, and nothing is cut."""
    row = row_text(latency_row("ITL", histogram_latency(Histogram((math.inf,), (40.0,), 4.0), 60.0), 39))
    assert row.split("  ")[-1] == "no usable buckets"
    assert len(row) <= 39
