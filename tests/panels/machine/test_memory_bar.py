"""The bar of memory and what stands below it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.colors.palette import palettes
from sparktop.demo.machine import Machine, node_sample
from sparktop.model.node import (
    CACHE_PART,
    CMA_FREE_PART,
    CMA_PART,
    FREE_PART,
    GPU_PART,
    HUGE_PART,
    OTHER_PART,
    PROGRAMS_PART,
    MemoryPart,
    MemoryReading,
)
from sparktop.model.snapshot import Headroom
from sparktop.panels.machine.detail import memory_parts, memory_section
from sparktop.panels.machine.panel import slope_text, trend_runs
from sparktop.panels.parts.text import row_text, row_width
from tests.panels.machines import FALLING

GIB = 2**30
NAMES = (
    GPU_PART,
    PROGRAMS_PART,
    CACHE_PART,
    CMA_PART,
    HUGE_PART,
    OTHER_PART,
    CMA_FREE_PART,
    FREE_PART,
    "of tomorrow",
)
WIDTHS = (43, 46, 54, 57)


def lines(memory: MemoryReading, width: int, headroom: Headroom = Headroom()) -> list[str]:  # noqa: B008 - frozen
    return [row_text(row) for row in memory_section(memory, headroom, width).lines(width)]


def test_no_two_parts_look_alike() -> None:
    """Each part has its own pattern and its own role, in every theme another colour from its neighbour's."""
    parts = memory_parts(MemoryReading(parts=tuple(MemoryPart(name, 1) for name in NAMES)))
    assert len({part.sign for part in parts}) == len({part.role for part in parts}) == len(NAMES)
    for palette in palettes().values():
        colours = [palette.color(part.role) for part in parts]
        assert palette.ansi or len(set(colours)) == len(colours)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.integers(0, 200 * GIB), min_size=len(NAMES), max_size=len(NAMES)),
    st.sampled_from(WIDTHS),
)
def test_the_bar_is_as_wide_as_its_column_and_names_every_part(sizes: list[int], width: int) -> None:
    """Whatever the sizes, the bar fills the column exactly and each part stands in the legend."""
    parts = tuple(MemoryPart(name, size) for name, size in zip(NAMES, sizes, strict=True))
    memory = MemoryReading(total_bytes=sum(sizes), used_bytes=sum(sizes[:6]), parts=parts)
    section = memory_section(memory, Headroom(), width)
    assert {row_width(row) for row in section.lines(width)} == {width}
    if not sum(sizes):
        return
    assert row_width(section.rows[1]) == width
    text = " ".join(row_text(row) for row in section.rows)
    assert all(part.name[:6] in text for part in memory_parts(memory, short=width < 52))


@pytest.mark.parametrize("load", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("at", [0.0, 33.0, 4000.0])
def test_the_simulated_machine_adds_up(at: float, load: float) -> None:
    """The parts of the simulated GB10 are exactly its memory; what is free is its headroom and CMA."""
    memory = node_sample(at, load, Machine(leak_bytes_per_s=3e6)).memory
    sizes = {part.name: part.size_bytes for part in memory.parts}
    assert sum(sizes.values()) == memory.total_bytes
    assert min(sizes.values()) >= 0
    assert memory.available_bytes == sizes[FREE_PART] + sizes[CACHE_PART] + sizes[CMA_FREE_PART]
    assert memory.headroom_bytes == memory.available_bytes - sizes[CMA_FREE_PART]


def test_unknown_parts_leave_used_and_free() -> None:
    """If no parts are reported, the bar has used and free; without a total it has no parts."""
    parts = memory_parts(MemoryReading(total_bytes=8 * GIB, used_bytes=3 * GIB))
    assert [(part.name, part.size) for part in parts] == [("used", 3 * GIB), ("free", 5 * GIB)]
    assert memory_parts(MemoryReading(used_bytes=3 * GIB)) == []


def test_an_overlap_is_said_in_the_heading() -> None:
    """The heading has the size that was counted twice; the number of rows stays the same."""
    memory = node_sample(10.0, 0.5).memory
    more = lines(replace(memory, overlap_bytes=3 * GIB // 2), 46)
    assert "1.5 GiB overlap, cut" in more[0]
    assert len(more) == len(lines(memory, 46))


@pytest.mark.parametrize(
    ("width", "words"),
    [
        (43, "−0.6 GiB/min, 8 GiB limit in 14 min"),
        (30, "−0.6 GiB/min, limit in 14 min"),
        (19, "limit in 14 min"),
    ],
)
def test_the_trend_tells_what_fits(width: int, words: str) -> None:
    """It has the slope, the limit and the time until it, or the time alone, but never half a part."""
    assert row_text(trend_runs(FALLING, width)) == words


@pytest.mark.parametrize(("until_s", "role"), [(3600.0, "text"), (1700.0, "warn"), (200.0, "bad")])
def test_the_nearer_the_limit_the_louder(until_s: float, role: str) -> None:
    """The time until the limit is drawn as a warning from half an hour on, as bad from five minutes on."""
    assert trend_runs(Headroom(-1e6, 120.0, until_s, 8 * GIB), 60)[-1][1] == role


def test_no_trend_is_no_number() -> None:
    """A headroom that does not change stands without a slope; an unknown one has a dash."""
    assert "no clear rise or fall" in " ".join(lines(MemoryReading(headroom_bytes=GIB), 54))
    trend = next(line for line in lines(MemoryReading(), 54) if line.startswith("trend"))
    assert trend.split() == ["trend", "–"]
    assert row_text(trend_runs(Headroom(2e6, 120.0), 40)) == slope_text(2e6) == "+0.1 GiB/min"
    assert slope_text(-1024.0) == "−60.0 KiB/min"
