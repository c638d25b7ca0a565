"""The agent's page for Prometheus: names, units, unknown values, and a check by promtool."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families as text_families

from sparktop.agent.exposition import page
from sparktop.demo.machine import IDENTITY
from sparktop.hardware.machine import Machine
from sparktop.model.node import (
    PREFIX,
    GpuReading,
    NetworkReading,
    NodeIdentity,
    NodeSample,
    SensorReading,
)
from sparktop.sources.local import LocalSource
from tests.hardware.fake_driver import GIB, FakeDriver, h100, h200, mig_slice, process
from tests.hardware.gb10_root import TOTAL_KIB, advance, build
from tests.sources.installed import page_complaints

Values = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> NodeSample:
    """Return a sample of a Spark's files with an H200 and an H100 that is split by MIG."""
    root = build(tmp_path_factory.mktemp("spark"))
    processes = [process(7, GIB), process(9, 2 * GIB), process(8, None)]
    first = h200(nvmlDeviceGetComputeRunningProcesses=processes, nvmlDeviceGetCurrentClocksEventReasons=0x4)
    now = [0.0]
    driver = FakeDriver(first, h100(mig_slice()))
    driver.names = {7: "vllm", 9: "vllm"}
    machine = Machine(root, nvml=driver, clock=lambda: now[0])
    machine.read()
    advance(root, 1)
    now[0] = 1.0
    return machine.read(processes=True)


def values(families: list[Metric]) -> Values:
    """Return every value by the name and labels of its series; fail on a repeated series."""
    found: Values = {}
    for family in families:
        for one in family.samples:
            key = (one.name.removeprefix(PREFIX), frozenset(one.labels.items()))
            assert key not in found
            found[key] = one.value
    return found


def text_values(sample: NodeSample | None, identity: NodeIdentity = IDENTITY) -> Values:
    return values(list(text_families(page(identity, sample).decode())))


def key(series: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return series, frozenset(labels.items())


async def this_machine() -> NodeSample:
    """Read this machine twice: rates are known from the second reading on."""
    source = LocalSource("here")
    await source.poll(10.0)
    sample = await source.poll(10.0)
    await source.close()
    assert isinstance(sample, NodeSample)
    return sample


def test_values_are_the_samples_own_in_base_units(whole: NodeSample) -> None:
    """Percent become ratios, MHz hertz and bits bytes; all other values are as they were read."""
    found = text_values(whole)
    expected: Mapping[tuple[str, frozenset[tuple[str, str]]], float] = {
        key("cpu_core_usage_ratio", core="5"): 0.5,
        key("cpu_group_max_frequency_hertz", group="Cortex-X925"): 3.9e9,
        key("memory_total_bytes"): TOTAL_KIB * 1024,
        key("memory_unified"): 0,
        key("gpu_usage_ratio", gpu="0"): 0.96,
        key("gpu_temperature_celsius", gpu="0"): 52,
        key("gpu_energy_joules_total", gpu="0"): 5_123_456.789,
        key("gpu_throttled_ratio", gpu="0", reason="sync boost"): 0,
        key("gpu_throttle_reason_active", gpu="0", reason="software power cap"): 1,
        key("gpu_process_memory_bytes", gpu="0", process="vllm"): 3 * GIB,
        key("gpu_mig_enabled", gpu="0"): 0,
        key("gpu_mig_memory_used_bytes", gpu="1", instance="0", profile="1g.10gb"): 3 * GIB,
        key("network_link_bytes_per_second", device="rocep1s0f0"): 25e9,
        key("network_receive_bytes_per_second", device="rocep1s0f0"): 5e9,
        key("network_info", device="rocep1s0f0", kind="rdma", netdev="enp1s0f0np0"): 1,
        key("sensor_temperature_celsius", sensor="nvme Composite"): 46.85,
        key("rail_energy_joules_total", rail="soc_pkg"): 7200,
    }
    assert {name: found.get(name) for name in expected} == pytest.approx(dict(expected))


def test_what_is_not_known_has_no_series() -> None:
    """An unknown value has no series: it is never 0 or NaN."""
    nothing = NodeSample(
        1.0, gpus=(GpuReading(0, temperature_c=math.nan),), network=(NetworkReading("x", "other"),)
    )
    found = text_values(nothing, NodeIdentity())
    names = {"info", "simulated", "gpus", "gpus_lost", "gpu_info", "network_info"}
    assert {name for name, _ in found} == names
    assert not [value for value in found.values() if math.isnan(value)]


HOSTILE = st.text(max_size=30) | st.sampled_from(['"', "\\", "\n", "a\x1b[31m", "\u202e", "#", "{}"])


@given(st.lists(HOSTILE, max_size=6), HOSTILE)
def test_hostile_names_stay_labels(names: list[str], cpu: str) -> None:
    """Names from outside cannot break out of their label, and none is lost."""
    sample = NodeSample(1.0, sensors=tuple(SensorReading(name, 1.0) for name in names))
    identity = NodeIdentity(cpu=cpu)
    found = text_values(sample, identity)
    assert len([name for name, _ in found if name == "sensor_temperature_celsius"]) == len(names)


@pytest.mark.outside
async def test_promtool_finds_nothing_to_say(whole: NodeSample) -> None:
    """Debian's promtool reports no problem for a whole sample, for none and for this machine."""
    for sample in (whole, await this_machine(), None):
        assert await asyncio.to_thread(page_complaints, page(IDENTITY, sample)) == b""
