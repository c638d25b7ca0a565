"""GPUs in a node's detail: one in full, several as a table, and how fast they are against their load."""

from __future__ import annotations

import dataclasses
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sparktop.demo.machine import Machine, node_sample
from sparktop.model.node import GpuReading, NodeSample
from sparktop.model.snapshot import NodeView, SpeedState
from sparktop.panels.machine.detail import gpu_sections, node_detail, speed_section
from sparktop.panels.machine.panel import (
    energy_text,
    fleet_name,
    footnote,
    margin_of,
    margin_role,
    node_panel,
    state_run,
)
from sparktop.panels.parts.graph import TimeAxis, TimeWindow
from sparktop.panels.parts.text import Row, row_text, row_width
from tests.panels.machines import CAUSE, FIX, SLOW, dead, h100, many_gpus, no_gpu

AXIS = TimeAxis(130.0, 2.0)
WINDOW = TimeWindow(130.0, 76.0)
SIZES = [(60, 14), (80, 22), (118, 34), (200, 48)]


def view_of(gpu: GpuReading, **more: object) -> NodeView:
    sample = NodeSample(1.0, gpus=(gpu,))
    return NodeView("n", "local", sample, age_s=0.1, **more)  # type: ignore[arg-type]  # each test gives its own


def text_of(rows: list[Row]) -> str:
    return "\n".join(row_text(row) for row in rows)


def gpu_text(view: NodeView, width: int = 54) -> str:
    return "\n".join(row_text(row) for section in gpu_sections(view, width) for row in section.lines(width))


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("make", [many_gpus, no_gpu, dead])
def test_every_machine_fits_every_size(make: object, width: int, height: int) -> None:
    """Eight GPUs, none, and a machine that was never reached: every row is as wide as the board."""
    view = make()  # type: ignore[operator]  # one of the makers above
    for rows in (node_detail(view, (), width, height, AXIS), node_panel(view, width, 8, WINDOW, 100.0)):
        assert {row_width(row) for row in rows} == {width}


@pytest.mark.parametrize("width", [43, 46, 54, 57])
def test_eight_gpus_have_a_row_each(width: int) -> None:
    """Each GPU is one row that is not cut, its instances below it, and all of them together last."""
    text = gpu_text(many_gpus(), width)
    assert len(re.findall(r"(?m)^ [0-7] ", text)) == 8
    assert text.count("MIG") == 2
    assert text.index(" 3 ") < text.index("MIG 0 3g.40gb") < text.index("\n 4 ")
    assert re.search(r"all +67 % mean, 4,090 W of 7, 7,000 kWh", text)
    assert "hw thermal 12 %" in text
    body = [line for line in text.splitlines() if re.match(r" [0-6] ", line)]
    assert not any("…" in line for line in body)


def test_what_a_gpu_does_not_tell_is_a_dash() -> None:
    """The sixth GPU reports its memory size alone: all else is a dash, not a zero."""
    line = next(line for line in gpu_text(many_gpus()).splitlines() if line.startswith(" 5 "))
    assert "–/80" in line
    assert not re.search(r"\b0\b", line)


def test_kinds_are_counted() -> None:
    """Equal GPUs are counted under their name, different ones each under its own."""
    gpus = (
        h100(0),
        h100(1),
        dataclasses.replace(h100(2), name="NVIDIA L4"),
        dataclasses.replace(h100(3), name=None),
    )
    assert fleet_name(gpus) == "2 × NVIDIA H100 80GB HBM3, 1 × NVIDIA L4, 1 × –"


@pytest.mark.parametrize(
    ("gpu", "margin", "role"),
    [
        (GpuReading(0, temperature_c=81.0, limit_margin_c=13.0), 13.0, "text"),
        (GpuReading(0, temperature_c=85.0, limit_margin_c=9.0), 9.0, "warn"),
        (GpuReading(0, temperature_c=91.0, limit_margin_c=3.0), 3.0, "bad"),
        (GpuReading(0, temperature_c=80.0, slowdown_c=92.0), 12.0, "text"),
        (GpuReading(0, temperature_c=80.0), None, "text"),
        (GpuReading(0, slowdown_c=92.0), None, "text"),
    ],
)
def test_the_margin_is_what_the_driver_tells(gpu: GpuReading, margin: float | None, role: str) -> None:
    """The margin is that to the thermal limit, else that to the slowdown; without either it is unknown."""
    assert margin_of(gpu) == margin
    assert margin_role(margin) == role


def test_the_slowdown_is_not_called_the_limit() -> None:
    """If only the slowdown temperature is reported, the words say so."""
    assert "12 to slow" in gpu_text(view_of(GpuReading(0, temperature_c=80.0, slowdown_c=92.0)))
    assert "12 to limit" in gpu_text(view_of(GpuReading(0, temperature_c=80.0, limit_margin_c=12.0)))


def test_energy_has_a_unit_that_fits() -> None:
    """Joules become watt-hours, and kilowatt-hours where there are many."""
    assert [energy_text(joules) for joules in (1800.0, 3.6e5, 3.6e7)] == ["0.5 Wh", "100 Wh", "10.0 kWh"]
    gpu = GpuReading(0, power_w=650.0, power_limit_w=700.0, energy_j=3.6e9)
    assert "650 of 700 W" in gpu_text(view_of(gpu))
    assert re.search(r"energy +1,000 kWh since the driver was loaded", gpu_text(view_of(gpu)))
    assert "energy" not in gpu_text(view_of(dataclasses.replace(gpu, energy_j=None)))


def test_the_minute_goes_before_the_last_look() -> None:
    """Shares are of the last minute, as the heading says; without a minute, of the last sample."""
    gpu = GpuReading(0, throttle_reasons=(), throttled_percent={"software thermal": 44.0})
    assert re.search(r"sw thermal +44 %", gpu_text(view_of(gpu)))
    minute = gpu_text(view_of(gpu, throttled_percent={"software thermal": 7.0}))
    assert re.search(r"sw thermal +7 %", minute)
    assert "throttled of 60 s" in minute


def test_a_slow_clock_names_cause_and_fix() -> None:
    """State, rule, cause and remedy are in the section in full; nothing is cut at any width."""
    view = replace(view_of(node_sample(30.0, 0.8, Machine(slow_clock=True)).gpus[0]), speed=SLOW)
    for width in (43, 54, 69):
        words = " ".join(" ".join(row_text(row) for row in speed_section(view, width)[0].rows).split())
        assert words.startswith(f"slow clock {SLOW.reason} likely {CAUSE} to do {FIX}")


def test_a_slow_machine_says_so_at_its_frame() -> None:
    """The word stands on the upper edge and cause and fix on the lower one: no row moves for it."""
    well = view_of(node_sample(30.0, 0.8).gpus[0])
    slow = replace(well, speed=SLOW)
    assert state_run(slow) == ("slow clock", "bad")
    assert state_run(well) == ("unknown", "muted")
    assert CAUSE in row_text(footnote(slow))
    before, after = (node_panel(view, 120, 8, WINDOW, 100.0) for view in (well, slow))
    assert [row_text(row) for row in before[1:-1]] == [row_text(row) for row in after[1:-1]]


@pytest.mark.parametrize(("word", "role"), [("idle", "muted"), ("normal", "good"), ("unknown", "muted")])
def test_each_speed_stands_beside_the_name(word: str, role: str) -> None:
    """The state of a machine is read where its name is, in the colour of the state."""
    view = view_of(GpuReading(0), speed=SpeedState(word, "some rule"))
    assert state_run(view) == (word, role)
    assert f"node n┌┐{word}┌" in row_text(node_panel(view, 80, 8, WINDOW, 100.0)[0])
    assert word in text_of(node_detail(view, (), 118, 34, AXIS))


def test_the_slow_variant_of_the_simulation_is_pinned() -> None:
    """Under load its clock and power are those of the fault although no throttle reason is given."""
    gpu = node_sample(30.0, 1.0, Machine(slow_clock=True)).gpus[0]
    assert gpu.sm_clock_mhz is not None
    assert gpu.power_w is not None
    assert 500 <= gpu.sm_clock_mhz <= 850
    assert 15.0 <= gpu.power_w <= 18.0
    assert gpu.utilization_percent is not None
    assert gpu.utilization_percent >= 90
    assert gpu.throttle_reasons == ()
    assert node_sample(30.0, 0.0, Machine(slow_clock=True)).gpus == node_sample(30.0, 0.0).gpus


def test_a_machine_without_a_gpu_says_why() -> None:
    """The reason stands where the GPU would; there is no speed to judge."""
    assert "no NVIDIA driver here" in gpu_text(no_gpu())
    assert speed_section(no_gpu(), 54) == []


def test_why_a_machine_does_not_answer_is_not_below_the_fold() -> None:
    """The failure stands in the first rows of the detail, in the colour of what is wrong."""
    rows = node_detail(dead(), (), 80, 22, AXIS)
    assert "Host key verification failed" in row_text(rows[2])
    assert "bad" in {role for _, role in rows[2]}


READINGS = st.builds(
    GpuReading,
    index=st.integers(0, 15),
    name=st.one_of(st.none(), st.text("漢a[]", max_size=40)),
    utilization_percent=st.one_of(st.none(), st.floats(0, 100)),
    temperature_c=st.one_of(st.none(), st.floats(-20, 150)),
    limit_margin_c=st.one_of(st.none(), st.floats(-20, 100)),
    power_w=st.one_of(st.none(), st.floats(0, 5000)),
    energy_j=st.one_of(st.none(), st.floats(0, 1e15)),
    sm_clock_mhz=st.one_of(st.none(), st.integers(0, 5000)),
    memory_total_bytes=st.one_of(st.none(), st.integers(0, 10**13)),
    memory_used_bytes=st.one_of(st.none(), st.integers(0, 10**13)),
    throttle_reasons=st.one_of(st.none(), st.tuples(st.text("x ", max_size=30))),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(READINGS, max_size=9), st.sampled_from(SIZES))
def test_any_readings_fit(gpus: list[GpuReading], size: tuple[int, int]) -> None:
    """Whatever a driver reports about however many GPUs, each row is as wide as the board."""
    view = NodeView("n", "local", NodeSample(1.0, gpus=tuple(gpus)), age_s=0.1)
    for rows in (node_detail(view, (), *size, AXIS), node_panel(view, size[0], 9, WINDOW, 100.0)):
        assert {row_width(row) for row in rows} == {size[0]}
