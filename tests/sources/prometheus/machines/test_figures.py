"""Figures of machines: what each exporter reports, joined; what none reports is unknown."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sparktop.agent.exposition import page
from sparktop.model.node import CpuReading, GpuReading, MemoryPart, MemoryReading, NodeSample
from sparktop.sources.prometheus.answer import Answer, Series
from sparktop.sources.prometheus.client import PrometheusClient
from sparktop.sources.prometheus.machines.exporters import FIGURES, MARKS
from sparktop.sources.prometheus.machines.figures import raw, sample_of
from sparktop.sources.prometheus.machines.found import found_exporters, joined
from tests.sources.prometheus.steps import at_once


class Answering(PrometheusClient):
    """A client whose queries for raw samples return the same series."""

    def __init__(self, *series: Series) -> None:
        self._series = series

    async def query(self, promql: str, add: Callable[[Series], None] | None = None) -> Answer:
        """Add the series for a query of raw samples; nothing for others."""
        assert add is not None
        for one in self._series if promql.endswith("s]") else ():
            add(one)
        return Answer()


async def read(*series: Series) -> NodeSample:
    """Return the sample of the only machine that these series are of."""
    marks = at_once(found_exporters(one for one in series if one.labels["__name__"] in MARKS))
    (machine,) = at_once(joined(marks))
    found = sample_of(machine, await raw(Answering(*series), "", [machine], 15.0), 100.0)
    assert found is not None
    return found


def one(name: str, value: str, **labels: str) -> Series:
    """Return a series of an exporter on the host h."""
    job = "dcgm" if name.startswith("DCGM") else "node"
    return Series({"__name__": name, "job": job, "instance": "h:1", **labels}, [(5.0, value)])


def gpu(name: str, value: str, **labels: str) -> Series:
    """Return a series of dcgm-exporter about GPU 0."""
    more = {"gpu": "0", "UUID": "GPU-1", "modelName": "NVIDIA GB10", "Hostname": "h", **labels}
    return one(f"DCGM_FI_DEV_{name}", value, **more)


async def test_the_page_of_an_agent_becomes_the_sample_that_it_was_made_of() -> None:
    """Every field that the page has, in its unit; so no name and no factor is wrong."""
    memory = MemoryReading(
        unified=True,
        total_bytes=128 << 30,
        used_bytes=68 << 30,
        available_bytes=60 << 30,
        headroom_bytes=57 << 30,
        cma_free_bytes=3 << 30,
        pressure_full_avg10=1.5,
        swap_total_bytes=1 << 30,
        swap_used_bytes=5,
        swap_in_bytes_per_s=7.5,
        parts=(MemoryPart("free", 60 << 30), MemoryPart("cache", 68 << 30)),
    )
    reading = GpuReading(
        1,
        "NVIDIA GB10",
        "GPU-1",
        utilization_percent=96.5,
        temperature_c=61.0,
        limit_margin_c=20.0,
        power_w=41.5,
        power_limit_w=100.0,
        sm_clock_mhz=2411,
        sm_clock_max_mhz=3003,
        throttle_reasons=("software thermal",),
        energy_j=12.5,
    )
    truth = NodeSample(105.0, CpuReading(12.5, (), 20, 3.5), memory, (reading,))
    text = page(None, truth, accept=None)[0].decode()
    added = {"job": "agent", "instance": "h:9750"}
    series = [
        Series({**sample.labels, "__name__": sample.name, **added}, [(5.0, repr(sample.value))])
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]
    found = await read(*series)
    assert found.cpu == truth.cpu
    assert found.memory == truth.memory
    (back,) = found.gpus
    for field in ("index", "name", "uuid", "temperature_c", "limit_margin_c", "power_w", "power_limit_w"):
        assert getattr(back, field) == getattr(reading, field), field
    assert back.utilization_percent == pytest.approx(96.5)
    assert (back.sm_clock_mhz, back.sm_clock_max_mhz) == (2411, 3003)
    assert (back.throttle_reasons, back.energy_j) == (("software thermal",), 12.5)
    assert found.at == 105.0


async def test_dcgm_and_node_exporter_make_one_sample() -> None:
    """Reasons in words; MiB, mJ and the headroom in their units; a GB10 has no memory of its own."""
    found = await read(
        gpu("GPU_TEMP", "61"),
        gpu("GPU_UTIL", "96"),
        gpu("TOTAL_ENERGY_CONSUMPTION", "12500"),
        gpu("CLOCKS_EVENT_REASONS", "33"),
        one("node_uname_info", "1", nodename="h"),
        one("node_memory_MemTotal_bytes", "128"),
        one("node_memory_MemAvailable_bytes", "60"),
        one("node_memory_CmaFree_bytes", "10"),
        one("node_load1", "3.5"),
    )
    (only,) = found.gpus
    assert (only.temperature_c, only.utilization_percent, only.energy_j) == (61, 96, 12.5)
    assert only.throttle_reasons == ("software thermal",)
    assert (only.memory_total_bytes, only.memory_used_bytes, only.power_w) == (None, None, None)
    assert (found.memory.unified, found.memory.headroom_bytes, found.memory.used_bytes) == (True, 50, 68)
    assert (found.cpu.load1, found.cpu.percent) == (3.5, None)
    large = await read(gpu("GPU_TEMP", "61"), gpu("FB_USED", "3"), gpu("FB_FREE", "1"))
    assert (large.gpus[0].memory_total_bytes, large.memory.unified) == (4 << 20, False)
    assert large.memory.total_bytes is None


@pytest.mark.parametrize("value", ["NaN", "+Inf", "x", "9223372036854775792", "140737488355328"])
async def test_what_is_no_number_is_unknown(value: str) -> None:
    """Also DCGM's marks of an unknown value."""
    found = await read(gpu("GPU_TEMP", "61"), gpu("POWER_USAGE", value), gpu("CLOCK_THROTTLE_REASONS", "-1"))
    assert found.gpus[0].power_w is None
    assert found.gpus[0].throttle_reasons is None


async def test_duplicates_and_odd_labels_count_once() -> None:
    """A GPU that several pods share is one; an invalid index is 0; the number of GPUs is limited."""
    shared = [gpu("GPU_TEMP", "61", pod=f"p{number}") for number in range(3)]
    odd = [gpu("GPU_TEMP", "50", gpu=text) for text in ("x", "", "-1", "99999999")]
    assert [len((await read(*some)).gpus) for some in (shared, odd)] == [1, 1]
    many = [gpu("GPU_TEMP", "50", gpu=str(number)) for number in range(900)]
    assert len((await read(*many)).gpus) == 64


def test_every_figure_is_of_a_known_exporter() -> None:
    """The agent's names come from the table that its page is written from."""
    assert {one.kind for one in FIGURES.values()} == {"agent", "dcgm", "node"}
    assert FIGURES["sparktop_node_gpu_usage_ratio"].field == "utilization_percent"
