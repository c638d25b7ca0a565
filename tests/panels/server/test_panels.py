"""Panels of servers: figures are whole or absent, limits colour latencies, loading and ranks are said."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from sparktop.analysis.ranks import judge_ranks
from sparktop.model.event import Finding, FindingKind, Progress, ProgressView, Severity
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.figures import COUNTER_FIGURES
from sparktop.model.node import GpuReading, NetworkReading, NodeSample, ProcessReading, ProcessTable
from sparktop.model.ranks import RanksReading, RanksView
from sparktop.model.snapshot import (
    BackendState,
    BackendView,
    EngineProcess,
    Latency,
    Limit,
    LimitKind,
    Loading,
    NodeView,
    Quantile,
    Snapshot,
)
from sparktop.panels.board.scene import Scene
from sparktop.panels.parts.figures import latency_role, latency_row
from sparktop.panels.parts.graph import TimeAxis, TimeWindow, column_width
from sparktop.panels.parts.text import row_text, row_width
from sparktop.panels.server.detail import backend_detail, counter_sections, ranks_lead, ranks_section
from sparktop.panels.server.panel import footnote, tile_panel
from sparktop.report.json_snapshot import to_json
from sparktop.report.text_snapshot import markdown
from sparktop.report.text_snapshot import render as text
from tests.hardware.ras.examples import answer
from tests.known import known
from tests.panels.drawn import board, fitted, text_of, texts

WINDOW = TimeWindow(130.0, 60.0)


def tile(view: BackendView, width: int, height: int = 3) -> list[str]:
    return fitted(tile_panel(view, width, height, WINDOW, 40.0), width)


@pytest.mark.parametrize("width", range(26, 50, 5))
@pytest.mark.parametrize(
    ("tps", "run", "wait", "kv"),
    [(0.0, 0, 0, 0.0), (165.0, 16, 13, 100.0), (1670.0, 128, 117, 52.0), (None, None, None, None)],
)
def test_figures_are_whole_or_absent(
    playing: Snapshot, width: int, tps: float | None, run: float | None, wait: float | None, kv: float | None
) -> None:
    """At every width a tile has tokens, running and waiting requests in full; the KV cache may be missing."""
    view = replace(playing.backends[0], generation_tps=tps, running=run, waiting=wait, kv_cache_percent=kv)
    inside = tile(view, width)[1].strip("│")
    assert "…" not in inside
    counts = known(re.search(r"(\S+) (?:tok/s (?:10 s )?)?(?:run (\S+) wait (\S+)|(\d+|–)\+(\d+|–))", inside))
    parts = [part for part in counts.groups() if part is not None]
    shown = [0.0 if part == "–" else float(part.replace(",", "")) for part in parts]
    assert shown == [tps or 0.0, run or 0.0, wait or 0.0]
    assert "KV" not in inside or re.search(r"KV (\d+ %|–)", inside)


@pytest.mark.parametrize("state", BackendState)
def test_a_title_keeps_the_name_and_a_word_for_the_state(playing: Snapshot, state: BackendState) -> None:
    """The state loses its window, then letters, before the name of the backend is cut."""
    view = replace(playing.backends[0], state=state, state_window_s=10.0)
    top = tile(view, 26)[0]
    assert "spark-a" in top
    assert "…" not in top


YARDSTICKS = Finding(
    FindingKind.YARDSTICKS,
    "spark-a",
    "88 % of its own best, 93 % of the best published rate, 52 % of the bandwidth limit",
    values={"own_best_percent": 88.2, "published_percent": 93.1, "limit_percent": 52.0},
)
BANDWIDTH = Limit(LimitKind.BANDWIDTH, "reads 262 of 273 GB/s; 47 of 48 slots free on average", window_s=30.0)


def edges(shown: Snapshot, *findings: Finding, width: int) -> list[str]:
    """Return the lower edges of the panels of all servers, which have these findings."""
    views = tuple(replace(one, findings=findings, limited_by=BANDWIDTH) for one in shown.backends)
    scene = Scene(replace(shown, backends=views), width, 22 if width < 100 else 34)
    drawn = [panel for panel in scene.draw() if panel.key.kind == "backend"]
    return [row_text(panel.rows[-1]) for panel in drawn]


def test_yardsticks_stand_on_each_panel(playing: Snapshot) -> None:
    """Wide panels say them in full at the right, narrow ones in few words, also above the time axis."""
    first, last = edges(playing, YARDSTICKS, width=200)
    assert "reads 262 of 273 GB/s" in first
    assert "93 % of the best published rate, 52 % of the bandwidth limit ─╯" in first
    assert "reads 262 of 273 GB/s · tok/s 88 % of own best · 93 % of published · 52 % of limit ─" in last
    assert "─now─╯" in last
    first, last = edges(playing, YARDSTICKS, width=80)
    assert "limited by memory bandwidth · tok/s 88 % of own best · 93 % of published" in first
    assert "limited by memory bandwidth · tok/s 88 % of own best ─" in last
    assert "─now─╯" in last


@pytest.mark.parametrize(
    ("severity", "short", "sign"), [(Severity.WARNING, " 27 GiB short", "▲ "), (None, "", "")]
)
def test_a_sleeping_server_says_first_whether_it_can_wake(
    playing: Snapshot, severity: Severity | None, short: str, sign: str
) -> None:
    """Where its queue has no room beside that, the line is of its memory, with the key for more."""
    line = f"waking needs 82 GiB, can get {55 if short else 99} GiB{':' if short else ''}{short}"
    waking = Finding(
        FindingKind.START_SHORT if short else FindingKind.START_FITS, "spark-a", line, severity=severity
    )
    queue = ProgressView(Progress.STILL, 240.0, "holds requests while it sleeps")
    sleeping = replace(playing.backends[0], findings=(waking,), state=BackendState.ASLEEP, progress=queue)
    shown = replace(playing, backends=(sleeping, *playing.backends[1:]))
    for width, height in ((80, 22), (200, 48)):
        panels = [panel for panel in Scene(shown, width, height).draw() if panel.key.kind == "backend"]
        edge = row_text(panels[0].rows[-1])
        assert f" {sign}{line} enter " in edge
        assert ("holds requests while it sleeps" in edge) is (width == 200)


def test_a_finding_leaves_the_limit_where_there_is_room(playing: Snapshot) -> None:
    """Its line and key stand at the left, with the number of those that need attention."""
    differs = Finding(FindingKind.MACHINES_DIFFER, "spark-a", "MTU differs", severity=Severity.WARNING)
    first, _ = edges(playing, differs, replace(differs, line="NCCL differs"), width=120)
    assert first.startswith("╰─ ▲2 MTU differs enter ─")
    assert "limited by memory bandwidth: reads 262 of 273 GB/s" in first


def test_unknown_yardsticks_are_said_in_a_line(playing: Snapshot) -> None:
    """A server that works says that the expected rate is not known; an idle one says nothing."""
    server = playing.backends[0]

    def said(view: BackendView) -> str:
        rows = backend_detail(view, {}, 120, 60, TimeAxis(1.0, 1))
        return " ".join(row_text(row).strip("│ ") for row in rows[:5])

    assert "expected tok/s not known" in said(server)
    assert "expected" not in said(replace(server, running=0.0))
    assert "expected" not in said(replace(server, findings=(YARDSTICKS,)))


COUNTED = BackendView("b", "http://b:1", "g", counter_figures={one.name: 98.7654 for one in COUNTER_FIGURES})


@pytest.mark.parametrize("screen", [60, 80, 120, 200])
def test_every_figure_is_drawn_whole(screen: int) -> None:
    """No label or unit is cut at any size of the screen, and no row is too wide."""
    width = column_width(screen)
    rows = [row for section in counter_sections(COUNTED, width) for row in section.rows]
    text = text_of(rows)
    assert max(row_width(row) for row in rows) <= width
    assert all(one.title in text for one in COUNTER_FIGURES)
    assert "…" not in text


GIB = 2**30
NOON = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
REFUSED = "connections are refused while it loads (process 4001 on spark-a)"
LOADING = Loading(190.0, "weights", 3, 6, 40.0, 90.0, 280.0, "last time", memory_bytes=40 * GIB, pid=4001)
VIEW = BackendView(
    "spark-a",
    "http://127.0.0.1:8000",
    "g",
    state=BackendState.LOADING,
    state_rule=REFUSED,
    loading=LOADING,
    failure=Failure(FailureKind.LOADING, REFUSED, 1.0),
    failing_since=NOON,
    age_s=200.0,
    engine="vllm",
)
WORDS = "weights, phase 3 of 6, 3:10 of ~4:40 last time"


def snapshot(*views: BackendView) -> Snapshot:
    return Snapshot(NOON, 2.0, 1.0, 2.0, backends=views)


def screen(width: int, height: int, *views: BackendView) -> str:
    return text_of(board(snapshot(*views), (width, height)))


@pytest.mark.parametrize(("width", "height"), [(80, 22), (120, 34), (200, 48)])
def test_phase_and_times_are_on_the_panel(width: int, height: int) -> None:
    """The panel has the phase and its times; its edge says why the port is closed, whole or not."""
    drawn = screen(width, height, VIEW)
    words = ["loading", "weights, phase 3 of 6", "3:10 of ~4:40 last time"]
    words += ["connections are refused while it loads"] if width >= 120 else []
    assert [one for one in words if one not in drawn] == []
    edge = next(line for line in drawn.splitlines() if "figures 3 min old" in line)
    assert "…" not in edge
    seen = replace(VIEW, loading=replace(LOADING, node="spark-a"))
    assert "holds 40.0 GiB on spark-a" in screen(
        width, height, seen
    )  # all its processes, not the server's own


@pytest.mark.parametrize("loading", [None, LOADING])
@pytest.mark.parametrize(("width", "height"), [(60, 16), (80, 22), (120, 34), (200, 48)])
def test_old_figures_have_their_age_and_begin(width: int, height: int, loading: Loading | None) -> None:
    """A server that does not answer or loads says since when, whatever else is known of it."""
    finding = Finding(FindingKind.START_SHORT, "spark-a", "start needs 88 GiB, 41 GiB are free here", fix="f")
    failure = Failure(FailureKind.REFUSED, "nothing listens on 127.0.0.1:8000", 1.0)
    down = replace(VIEW, failure=failure, state=BackendState.UNREACHABLE, findings=(finding,))
    drawn = screen(width, height, replace(down, loading=loading))
    assert f"since {NOON.astimezone():%H:%M:%S}, figures 3 min old" in drawn
    if loading is None and width >= 80:
        assert "figures 3 min old: nothing listens on 127" in drawn, "why it does not answer comes first"


def test_reports_have_phase_and_times() -> None:
    """Reports as text, Markdown and JSON have the phase and its times."""
    shot = snapshot(VIEW)
    assert WORDS in " ".join(text(shot, 200).split())
    assert WORDS in markdown(shot)
    body = to_json(shot)["backends"][0]["loading"]  # type: ignore[index]  # values as json gives them
    assert (body["phase"], body["step"], body["left_s"], body["words"]) == ("weights", 3, 90.0, WORDS)


NAMES = {"192.168.100.11": "spark-a", "192.168.100.12": "spark-b"}


def node(name: str, clock: int, power_w: float, cpu_percent: float) -> NodeView:
    port = NetworkReading("rocep1s0f0", "rdma", up=True, rx_bytes_per_s=400.0, tx_bytes_per_s=112.0)
    table = ProcessTable((ProcessReading(7, "VLLM::Worker_TP0", 1, cpu_percent),))
    gpu = GpuReading(0, power_w=power_w, sm_clock_mhz=clock)
    sample = NodeSample(1.0, gpus=(gpu,), network=(port,), processes=table)
    process = EngineProcess(7, "VLLM::Worker_TP0", "vllm", "b")
    return NodeView(name, "agent", sample, engine_processes=(process,))


NODES = {"spark-a": node("spark-a", 2405, 19.2, 100.0), "spark-b": node("spark-b", 2411, 20.4, 99.0)}


def backend(example: str | None) -> BackendView:
    """Return a backend on two machines about which NCCL gave three equal answers (None: was not asked)."""
    view = BackendView("b", "http://b:8000", "g", nodes=("spark-a", "spark-b"))
    if example is None:
        return view
    readings = [RanksReading(at, "spark-a", answer(example)) for at in (0.0, 5.0, 10.0)]
    verdict = judge_ranks(readings, 0.0, lambda host: NAMES.get(host or "", "?"))
    ranks = RanksView(verdict, 4.0, node="spark-a", answer=answer(example), names=NAMES)
    return replace(view, ranks=ranks)


def lines(view: BackendView, width: int) -> list[str]:
    rows = (row for section in ranks_section(view, NODES, width) for row in section.lines(width))
    return [row.rstrip() for row in texts(rows)]


@pytest.mark.parametrize("width", [46, 54, 61, 80])
@pytest.mark.parametrize("example", [None, "healthy", "lags-by-one", "dead"])
def test_rows_fit_their_width(example: str | None, width: int) -> None:
    """No row is wider than its column, and none is cut."""
    for section in ranks_section(backend(example), NODES, width):
        assert max(row_width(row) for row in section.rows) <= width


def test_a_lagging_rank_has_its_machine_beside_the_other() -> None:
    """Rank, machine, count, clock, power, RDMA and the cores that the worker fills: one row each."""
    assert lines(backend("lags-by-one"), 54)[-3:] == [
        "rank machine          AllReduce  MHz   W    RDMA cores",
        "0    spark-a             27,911 2405  19 512 B/s   1.0",
        "1    spark-b             27,910 2411  20 512 B/s   1.0",
    ]


def test_the_verdict_stands_on_the_panel_only_if_ranks_are_apart() -> None:
    """If ranks diverged, the verdict is at the top of the full screen and in the lower edge of the frame."""
    apart, equal = backend("lags-by-one"), backend("healthy")
    assert row_text(footnote(apart)[0]).startswith(" rank 1 on spark-b is behind at AllReduce 27,910")
    assert "rank" not in row_text(footnote(equal)[0])
    assert len(ranks_lead(apart, 80)) == 2
    assert ranks_lead(equal, 60) == []


@pytest.mark.parametrize(("width", "first"), [(80, True), (200, False)])
def test_the_ranks_of_a_stuck_engine_need_no_scrolling(width: int, *, first: bool) -> None:
    """At 80 columns they come before the load; on a wide screen they stand beside it."""
    stuck = replace(backend(None), progress=ProgressView(Progress.STUCK, 154.0, "2 GPUs wait"), age_s=1.0)
    rows = [row_text(row) for row in backend_detail(stuck, NODES, width, 24, TimeAxis(200.0, 1.0))]
    ranks, load = (
        next(at for at, row in enumerate(rows) if f"─ {name} ─" in row) for name in ("ranks", "load")
    )
    assert (ranks < load) is first
    assert "2 GPUs wait" not in rows[-1]


def test_a_bound_is_slow_only_where_that_is_certain() -> None:
    """A quantile "below a bound" is never coloured; one "above a bound" is, if the bound is at the limit."""
    latency = Latency(slow_s=1.0)
    assert latency_role(latency, Quantile(1.0)) == "warn"
    assert latency_role(latency, Quantile(0.9)) == "text"
    assert latency_role(latency, Quantile(2.0, below=True)) == "text"
    assert latency_role(latency, Quantile(1.0, above=True)) == "warn"
    assert latency_role(replace(latency, slow_s=None), Quantile(99.0)) == "text"


WIDE = Quantile(2.0, bucket_s=(1.0, 2.5))


def test_the_mean_replaces_a_median_of_the_same_bucket() -> None:
    """Where there is no room for all three; not a mean above the p95, nor a median of another bucket."""
    for p50, mean_s, width, wanted in (
        (WIDE, 1.2, 36, "TTFT  mean   1.20 s p95  ≤2.50 s"),
        (WIDE, 2.6, 38, "TTFT  p50  ≤2.50 s p95  ≤2.50 s (60 s)"),
        (Quantile(0.9), 1.2, 36, "TTFT  p50   900 ms p95  ≤2.50 s"),
        (WIDE, 1.2, 60, "TTFT  p50  ≤2.50 s p95  ≤2.50 s  mean    1.20 s (60 s)"),
    ):
        latency = Latency(mean_s=mean_s, p50=p50, p95=WIDE, count=9.0, window_s=60.0)
        assert row_text(latency_row("TTFT", latency, width)).rstrip() == wanted
