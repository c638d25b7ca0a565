"""A backend and a node on the whole screen, at every size."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sparktop.graphics.cells import UNKNOWN_BAR
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import GpuProcess, GpuReading, NodeSample
from sparktop.model.router import Scrape
from sparktop.model.snapshot import BackendView, Latency, NodeView, Quantile, Snapshot
from sparktop.panels.board.layout import PanelKey
from sparktop.panels.machine.detail import node_detail
from sparktop.panels.parts.graph import TimeAxis
from sparktop.panels.parts.text import Row, row_text
from sparktop.panels.server.detail import backend_detail, backend_sections, window_words
from stage.rehearsal import Outage, Rehearsal
from tests.known import known
from tests.panels.drawn import SIZES, board, fitted, text_of

pytestmark = pytest.mark.long

USUAL = (118, 34)
AXIS = TimeAxis(130.0, 1.0)


@pytest.fixture(scope="module")
def parallel() -> Snapshot:
    """Two lanes a backend, speculative, and a backend that died."""
    return Rehearsal(lanes=2, speculative=True, outage=Outage(1, 50)).play(66).snapshot()


def rows_of(snapshot: Snapshot, kind: str, name: str, size: tuple[int, int] = USUAL) -> list[Row]:
    return board(snapshot, size, zoomed=PanelKey(kind, name))


def everywhere(one: Quantile) -> Latency:
    """Return a latency whose quantiles are all the same."""
    return Latency(one.seconds, one, one, one, one, 500.0, 60.0)


def backend_text(view: BackendView) -> str:
    return text_of(backend_detail(view, {}, *USUAL, AXIS))


def node_text(sample: NodeSample, size: tuple[int, int] = USUAL) -> str:
    return text_of(node_detail(NodeView("n", "local", sample), (), *size, AXIS)[0])


@pytest.mark.parametrize("size", SIZES)
def test_no_figure_of_a_backend_is_left_out(parallel: Snapshot, size: tuple[int, int]) -> None:
    """However small the board, each section, its window and both lanes are there, the rule first."""
    text = text_of(rows_of(parallel, "backend", "spark-a", size))
    sections = (
        "load, throughput, latency, cache and speculation, share of the memory bandwidth, finished, server"
    )
    places = [text.index(f"─ {name} ") for name in sections.split(", ")]
    assert places == sorted(places)
    view = parallel.backends[0]
    assert f"{view.state.value} because {view.state_rule}"[:50] in text.splitlines()[1]
    words = "over 10 s|over 60 s|last 1 s|since its start|─ DP ranks |restarts|p95|mean"
    assert [one for one in words.split("|") if one not in text] == []
    assert len(re.findall(r"(?m)^.*\b[01] +\d+ +\d+ .*%.*%", text)) == 2
    basis = r"tok/s a request: [\d.]+ \(\d+ s\)(, alone ≤\d+)?"
    assert re.search(basis, text), "a request's rate is not of the 10 s beside the section"
    for mean_s in (None, math.nan, 0.0, -1.0):
        latency = Latency(mean_s, count=5.0, window_s=60.0)
        quiet = replace(view, tpot=latency, itl=latency, roofline_tps=107.0)
        text = text_of(rows_of(replace(parallel, backends=(quiet,)), "backend", quiet.name, size))
        assert "tok/s a request: alone ≤107" in text


def test_what_is_wrong_with_a_page_is_not_cut(parallel: Snapshot) -> None:
    """A metric's name and its value take as many rows as they need."""
    view = replace(parallel.backends[0], page_note="impossible value: vllm:num_requests_running = -7")
    for width in (36, 46, 76):
        lines = (
            row_text(row) for section in backend_sections(view, {}, width) for row in section.lines(width)
        )
        assert "value: vllm:num_requests_running = -7" in " ".join(" ".join(lines).split())


def test_an_engine_at_rest_has_no_size_of_a_step(parallel: Snapshot) -> None:
    """Beside "steps 0.0/s" no earlier batch stands as one of now."""
    works = replace(parallel.backends[0], steps_per_s=24.2, tokens_per_step=2.4)
    text = text_of(rows_of(replace(parallel, backends=(works,)), "backend", works.name, USUAL))
    assert re.search(r"tok/step +2.4 (\+input, 60 s|\(60 s\)) +steps", text)  # not of the heading's 10 s
    rests = replace(parallel.backends[0], steps_per_s=0.0)
    text = text_of(rows_of(replace(parallel, backends=(rests,)), "backend", rests.name, USUAL))
    assert re.search(r"tok/step +– ", text)


@pytest.mark.parametrize("size", [*SIZES, (300, 80)])
def test_no_reading_of_a_node_is_left_out(playing: Snapshot, size: tuple[int, int]) -> None:
    """However small the board, every core, interface, sensor and process is there."""
    text = text_of(rows_of(playing, "node", "spark-a", size))
    words = "unified memory|available −|swap|throttled|, limit 9|of 3003 MHz|trend|pressure|Cortex-X|▼GPU mem"
    assert [one for one in words.split("|") if one not in text] == []
    assert "10 x Cortex" not in text
    sample = known(playing.nodes[0].sample)
    assert all(link.name in text for link in sample.network)
    assert " in …" not in text, "tables below the graphs are as wide as their columns"
    assert all(sensor.name[:8] in text for sensor in sample.sensors)
    assert all(re.search(rf"[│ ]{core:>2} [▏▎▍▌▋▊▉█·]", text) for core in range(20))


def test_a_backend_that_never_answered_shows_no_figure() -> None:
    """Unknown is a dash everywhere, never a zero; restarts alone are counted from the start."""
    text = backend_text(BackendView("x", "http://x:1", "g"))
    body = [line[1:57] for line in text.splitlines()[2:-1] if "─ " not in line]
    labels = re.compile(r"p\d\d|E2E|last 1 s|batch 60 s|restarts +0 seen")
    assert [line for line in body if re.search(r"\d", labels.sub("", line))] == []
    assert "–" in text
    assert "connecting because no answer yet" in text


def test_an_unknown_node_shows_no_figure() -> None:
    """A node before its first sample, and one whose readings all failed, show dashes and no zero."""
    gpu = GpuReading(0)
    for sample in (NodeSample(0.0), NodeSample(0.0, gpus=(gpu,), gpu_note=None)):
        body = [line[1:57] for line in node_text(sample).splitlines()[1:-1]]
        assert not any(re.search(r"\d", line) for line in body)
    text = node_text(NodeSample(0.0, gpus=(GpuReading(0, sm_clock_mhz=900, power_limit_w=90.0),)))
    bars = [line for line in text.splitlines() if re.match("│ (temp|clock|power) ", line)]
    assert [UNKNOWN_BAR * 4 in line for line in bars] == [True] * 3, "of an unknown value or limit"
    assert "no driver here" in node_text(NodeSample(0.0, gpu_note="no driver here"))


@pytest.mark.parametrize(
    ("latency", "words"),
    [
        (Latency(), "–"),
        (Latency(count=0.0, window_s=60.0), "none in 60 s"),
        (Latency(mean_s=0.2, count=3.0, window_s=60.0), "–       –       –       –  200 ms     3"),
        (everywhere(Quantile(0.01, below=True)), "<10 ms"),
        (everywhere(Quantile(80.0, above=True)), ">80 s"),
    ],
)
def test_the_table_says_what_the_buckets_can(latency: Latency, words: str) -> None:
    """Untrusted the buckets the table shows the nearest bound; without an answer it says for how long."""
    view = BackendView("x", "http://x:1", "g", itl=latency)
    line = next(line for line in backend_text(view).splitlines() if "│ ITL " in line)
    assert words in line[:57]


def test_the_window_of_a_minute_is_called_one() -> None:
    """Shorter ones and the longer ones of slow polls have a length."""
    for seconds, words in ((59.9, "over 60 s"), (12.0, "over 12 s so far"), (150.0, "over 150 s")):
        assert window_words([Latency(), Latency(window_s=seconds)]) == words


def test_a_server_that_stands_still_says_once_that_no_latency_was_seen() -> None:
    """Seven rows of "none in 60 s" would say no more than one."""
    none = Latency(count=0.0, window_s=60.0)
    latencies = replace(BackendView("x", "http://x:1", "g"), ttft=none, itl=none, tpot=none, e2e=none)
    view = replace(latencies, queue=none, prefill=none, decode=none)
    rows = [row for section in backend_sections(view, {}, 46) for row in section.rows]
    said = [text for row in rows if "none in 60 s" in (text := row_text(row))]
    assert said == ["no latency: none in 60 s"]


def test_waiting_requests_are_told_apart_by_what_they_wait_for() -> None:
    """Those that would not run with a free slot are deferred, as vLLM calls it; unknown is no 0."""
    for ready, shown in ((7.0, "2"), (9.0, "0"), (None, "–")):
        view = BackendView("x", "http://x:1", "g", waiting=9.0, waiting_for_capacity=ready)
        load = next(section for section in backend_sections(view, {}, 46) if section.title == "load")
        assert load.window == "now; preempted over 10 s"
        assert re.search(rf"deferred +{shown}$", row_text(load.rows[1]).rstrip())


def test_a_dead_backend_is_drawn_stale_and_says_since_when(parallel: Snapshot) -> None:
    """Its last figures stay in the one stale colour, with their age and the failure below."""
    rows = rows_of(parallel, "backend", "spark-b")
    assert {role for row in rows[1:-1] for _, role in row} <= {"bad", "stale"}
    assert "unreachable because nothing listens" in row_text(rows[1])
    assert re.search(r"✖ since \d\d:\d\d:\d\d, figures \d+ s old: nothing listens", row_text(rows[-1]))


@pytest.mark.parametrize("size", SIZES)
def test_hostile_names_stay_inside(playing: Snapshot, size: tuple[int, int]) -> None:
    """Names with markup, wide characters or a megabyte of letters break no row."""
    name = "[red]漢字[/red]" + "w" * 300
    backend = playing.backends[0]
    lanes = tuple(replace(backend.lanes[0], lane=name + str(index)) for index in range(3))
    backend = replace(backend, name=name, model=name, state_rule=name, nodes=(name,), lanes=lanes)
    backend = replace(backend, finished={name: 3.0})
    node, read = playing.nodes[0], known(playing.nodes[0].sample)
    processes = tuple(GpuProcess(index, name, None) for index in range(30))
    gpu = replace(read.gpus[0], name=name, throttle_reasons=(name, name), processes=processes)
    sample = replace(
        read,
        gpus=(replace(gpu, throttled_percent={name: 3.0}),) * 2,
        network=tuple(replace(link, name=name, kind=name) for link in read.network),
        sensors=tuple(replace(sensor, name=name) for sensor in read.sensors),
    )
    node = replace(node, name=name, sample=sample)
    fitted(backend_detail(backend, {name: node}, *size, AXIS), size[0])
    fitted(node_detail(node, (backend,), *size, AXIS)[0], size[0])


NUMBERS = st.one_of(st.none(), st.floats(0, 1e12, allow_nan=False))


@given(
    st.fixed_dictionaries(
        {
            name: NUMBERS
            for name, kind in BackendView.__annotations__.items()
            if kind == "float | None" and name != "age_s"
        }
    ),
    st.sampled_from(SIZES),
)
def test_any_figures_fit(figures: dict[str, float | None], size: tuple[int, int]) -> None:
    """Whatever a server claims, no row of its detail is wider or narrower than the board."""
    view = BackendView("x", "http://x:1", "g", age_s=0.5, slots=16, **figures)  # type: ignore[arg-type] # by field
    fitted(backend_detail(view, {}, *size, AXIS), size[0])


def test_rates_between_two_scrapes_say_their_seconds(parallel: Snapshot) -> None:
    """Through a Prometheus that scrapes every 15 s, no label speaks of one second, as for a polled server."""
    view = parallel.backends[0]
    polled, scraped = backend_text(view), backend_text(replace(view, scrape=Scrape("prom", 15.0)))
    assert "last 1 s" in polled
    assert "output tok/s over 1 s" in polled
    assert "last 15 s" in scraped
    assert "output tok/s over 15 s" in scraped
    assert not re.search(r"\b1 s\b", re.sub(r"every.*?old", "", scraped))


def test_the_reason_of_a_failed_node_is_there_to_its_end(playing: Snapshot) -> None:
    """On 80 x 22, a long reason takes rows of its own, so that its remedy can be read."""
    message = (
        "ssh: Permission denied (publickey) for user on spark-a" + ", and more" * 8 + ": add a key there"
    )
    failed = replace(playing.nodes[0], failure=Failure(FailureKind.REFUSED, message, 0.0))
    for view in (failed, replace(failed, sample=None, age_s=None)):
        rows = node_detail(view, (), 80, 22, AXIS)[0]
        text = " ".join(row_text(row).strip("│ ") for row in rows[2:6])
        assert f"✖ {message}" in re.sub(" +", " ", text)
        assert {role for row in rows[2:4] for words, role in row[1:-1] if words.strip()} == {"bad"}
