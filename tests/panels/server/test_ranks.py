"""The ranks of a backend on its full screen: verdict, table, and what stands in its frame."""

from __future__ import annotations

import dataclasses

import pytest
from msgspec.structs import replace

from sparktop.analysis.ranks import judge_ranks
from sparktop.model.event import Progress, ProgressView
from sparktop.model.node import GpuReading, NetworkReading, NodeSample, ProcessReading, ProcessTable
from sparktop.model.ranks import RanksReading, RanksView
from sparktop.model.snapshot import BackendView, EngineProcess, NodeView
from sparktop.panels.parts.graph import TimeAxis
from sparktop.panels.parts.text import row_text, row_width
from sparktop.panels.server.detail import backend_detail, ranks_lead, ranks_section
from sparktop.panels.server.panel import footnote
from tests.hardware.ras.examples import answer

NAMES = {"192.168.100.11": "spark-a", "192.168.100.12": "spark-b"}


def node(name: str, clock: int, power_w: float, cpu_percent: float) -> NodeView:
    port = NetworkReading("rocep1s0f0", "rdma", up=True, rx_bytes_per_s=400.0, tx_bytes_per_s=112.0)
    table = ProcessTable((ProcessReading(7, "VLLM::Worker_TP0", 1, cpu_percent),))
    gpu = GpuReading(0, power_w=power_w, sm_clock_mhz=clock)
    sample = NodeSample(1.0, gpus=(gpu,), network=(port,), processes=table)
    process = EngineProcess(7, "VLLM::Worker_TP0", "vllm", "b")
    return NodeView(name, "agent", sample, engine_processes=(process,))


NODES = {"spark-a": node("spark-a", 2405, 19.2, 100.0), "spark-b": node("spark-b", 2411, 20.4, 99.0)}


def backend(example: str | None, *, asking: bool = False) -> BackendView:
    """Return a backend on two machines about which NCCL gave three equal answers (None: was not asked)."""
    view = BackendView("b", "http://b:8000", "g", nodes=("spark-a", "spark-b"))
    if example is None:
        return view
    readings = [RanksReading(at, "spark-a", answer(example)) for at in (0.0, 5.0, 10.0)]
    verdict = judge_ranks(readings, 0.0, lambda host: NAMES.get(host or "", "?"))
    ranks = RanksView(verdict, 4.0, asking, "spark-a", answer(example), None, NAMES)
    return BackendView("b", "http://b:8000", "g", nodes=("spark-a", "spark-b"), ranks=ranks)


def lines(view: BackendView, width: int) -> list[str]:
    rows = (row for section in ranks_section(view, NODES, width) for row in section.lines(width))
    return [row_text(row).rstrip() for row in rows]


@pytest.mark.parametrize("width", [46, 54, 61, 80])
@pytest.mark.parametrize("example", [None, "healthy", "lags-by-one", "dead"])
def test_rows_fit_their_width(example: str | None, width: int) -> None:
    """No row is wider than its column, and none is cut."""
    for section in ranks_section(backend(example), NODES, width):
        assert max(row_width(row) for row in section.rows) <= width


def test_a_lagging_rank_has_its_machine_beside_the_other() -> None:
    """Rank, machine, count, clock, power, RDMA and CPU of the worker: one row each."""
    assert lines(backend("lags-by-one"), 54)[-3:] == [
        "rank machine          AllReduce  MHz   W    RDMA   CPU",
        "0    spark-a             27,911 2405  19 512 B/s 100 %",
        "1    spark-b             27,910 2411  20 512 B/s  99 %",
    ]


def test_a_dead_rank_has_no_count() -> None:
    """The row of a rank that does not answer says so in place of its count."""
    assert lines(backend("dead"), 54)[-1].startswith("1    spark-b               dead 2411")


def test_before_a_query_the_machines_stand_side_by_side_too() -> None:
    """The table is there without counts, with the key that asks for them."""
    drawn = lines(backend(None), 54)
    assert drawn[2].startswith("–    spark-a                  – 2405")
    assert drawn[-1] == "N asks NCCL which rank lags or is missing"


def test_a_backend_on_one_machine_has_no_section_before_a_query() -> None:
    """One GPU alone has no ranks."""
    assert ranks_section(BackendView("b", "u", "g", nodes=("spark-a",)), NODES, 54) == []


def test_the_verdict_stands_on_the_panel_only_if_ranks_are_apart() -> None:
    """If ranks diverged, the verdict is at the top of the full screen and in the lower edge of the frame."""
    apart, equal = backend("lags-by-one"), backend("healthy")
    assert row_text(footnote(apart)[0]).startswith(" rank 1 on spark-b is behind at AllReduce 27,910")
    assert "rank" not in row_text(footnote(equal)[0])
    assert len(ranks_lead(apart, 80)) == 2
    assert ranks_lead(equal, 60) == []


def test_a_query_that_runs_is_shown() -> None:
    """The title names the node that is being asked."""
    assert "asking spark-a …" in lines(backend("healthy", asking=True), 54)[0]


def test_machines_whose_addresses_are_not_known_stand_below_the_ranks() -> None:
    """An address that only NCCL knows and a machine that is watched by name have a row each."""
    found = backend("lags-by-one")
    assert found.ranks is not None
    drawn = lines(replace(found, ranks=dataclasses.replace(found.ranks, names={})), 54)
    assert drawn[2].startswith("0    192.168.100.11")
    assert drawn[-1].startswith("–    spark-b")


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
