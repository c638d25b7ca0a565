"""The agent's page for Prometheus: names, units, unknown values, and a check by promtool."""

from __future__ import annotations

import asyncio
import math
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families as text_families

from sparktop.agent.exposition import page
from sparktop.demo.machine import IDENTITY
from sparktop.model.node import (
    PREFIX,
    CoreGroup,
    CpuReading,
    GpuProcess,
    GpuReading,
    MemoryPart,
    MemoryReading,
    MigInstance,
    NetworkReading,
    NodeIdentity,
    NodeSample,
    PowerRail,
    ProcessTable,
    SensorReading,
)
from sparktop.sources.local import LocalSource
from tests.sources.installed import installed

OPENMETRICS = "application/openmetrics-text;version=1.0.0"
TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

openmetrics_families: Callable[[str], Iterable[Metric]] = openmetrics.text_string_to_metric_families
Values = dict[tuple[str, frozenset[tuple[str, str]]], float]


def big_sample() -> NodeSample:
    """Return a sample with every field set: two GPUs, one of them split by MIG."""
    gpu = GpuReading(
        0,
        "NVIDIA H100 80GB HBM3",
        "GPU-0",
        utilization_percent=87.5,
        temperature_c=63.0,
        limit_margin_c=27.0,
        power_w=100.5,
        power_limit_w=700.0,
        sm_clock_mhz=1980,
        sm_clock_max_mhz=1980,
        memory_total_bytes=80 << 30,
        memory_used_bytes=5 << 30,
        throttle_reasons=("software power cap", "software thermal"),
        throttled_percent={"software power cap": 25.0, "sync boost": None},
        processes=(GpuProcess(1, "vllm", 1 << 30), GpuProcess(2, "vllm", 2 << 30), GpuProcess(3, "x")),
        energy_j=1e6,
        slowdown_c=92.0,
        mig=False,
    )
    link = NetworkReading(
        "mlx5_0",
        "rdma",
        up=True,
        rx_bytes_per_s=1e9,
        tx_bytes_per_s=2e9,
        link_bits_per_s=400e9,
        errors_per_s=3.0,
        bus_bits_per_s=512e9,
        errors={"out_of_sequence": 3.0},
        rx_packets_per_s=5.0,
        tx_packets_per_s=6.0,
        netdev="n",
    )
    instance = MigInstance(0, "1g.10gb", "MIG-0", 10 << 30, 1 << 30)
    return NodeSample(
        1.0,
        CpuReading(50.0, (7.0, 91.0), 2, 3.5, (CoreGroup("X", (0,), 5.0, 3900),)),
        MemoryReading(
            unified=False, total_bytes=2 << 40, parts=(MemoryPart("free", 1 << 40),), overlap_bytes=7
        ),
        (gpu, replace(gpu, index=1, uuid="GPU-1", mig=True, mig_instances=(instance,))),
        network=(link, replace(link, name="mlx5_1")),
        sensors=(SensorReading("mlx5", 50.0, 105.0), SensorReading("mlx5", 51.0)),
        cost_ms=1.5,
        rails=(PowerRail("sys_total", 55.5, 1234.5),),
        processes=ProcessTable(count=321),
    )


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
    body, kind = page(identity, sample, accept=None)
    assert kind == TEXT_TYPE
    return values(list(text_families(body.decode())))


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


def test_values_are_the_samples_own_in_base_units() -> None:
    """Percent become ratios, MHz hertz and bits bytes; all other values are as they were read."""
    sample = big_sample()
    found = text_values(sample)
    expected: Mapping[tuple[str, frozenset[tuple[str, str]]], float] = {
        key("sample_cost_seconds"): 0.0015,
        key("cpu_core_usage_ratio", core="1"): 0.91,
        key("cpu_group_max_frequency_hertz", group="X"): 3.9e9,
        key("memory_part_bytes", part="free"): 1 << 40,
        key("memory_unified"): 0,
        key("gpu_usage_ratio", gpu="1"): 0.875,
        key("gpu_temperature_celsius", gpu="0"): 63,
        key("gpu_energy_joules_total", gpu="1"): 1_000_000,
        key("gpu_throttled_ratio", gpu="1", reason="software power cap"): 0.25,
        key("gpu_throttle_reason_active", gpu="1", reason="software thermal"): 1,
        key("gpu_process_memory_bytes", gpu="1", process="vllm"): 3 << 30,
        key("gpu_mig_enabled", gpu="0"): 0,
        key("gpu_mig_memory_used_bytes", gpu="1", instance="0", profile="1g.10gb"): 1 << 30,
        key("network_link_bytes_per_second", device="mlx5_1"): 50e9,
        key("network_info", device="mlx5_0", kind="rdma", netdev="n"): 1,
        key("sensor_temperature_celsius", sensor="mlx5"): 50,
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
    whole = text_values(big_sample())
    assert key("gpu_throttled_ratio", gpu="0", reason="sync boost") not in whole
    assert key("gpu_process_memory_bytes", gpu="0", process="x") not in whole


@pytest.mark.parametrize("sample", [big_sample(), None], ids=["whole", "none"])
def test_openmetrics_says_the_same(sample: NodeSample | None) -> None:
    """On request the page is OpenMetrics, is valid for the format's own parser, and has the same values."""
    body, kind = page(IDENTITY, sample, accept=OPENMETRICS)
    assert kind.startswith("application/openmetrics-text; version=1.0.0; charset=utf-8")
    assert body.endswith(b"# EOF\n")
    assert values(list(openmetrics_families(body.decode()))) == text_values(sample)


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        (None, "text/plain"),
        ("text/html,application/xhtml+xml", "text/plain"),
        (f"{OPENMETRICS};q=0.5,text/plain;version=0.0.4;q=0.3", "application/openmetrics-text"),
        ("text/plain;version=0.0.4,application/openmetrics-text;version=1.0.0;q=0.1", "text/plain"),
        ("application/openmetrics-text;version=7.0.0", "text/plain"),
    ],
)
def test_accept_chooses_the_format(accept: str | None, kind: str) -> None:
    """The format is text 0.0.4 unless OpenMetrics 1.0 is requested; no other version is claimed."""
    told = page(IDENTITY, None, accept=accept)[1]
    assert told.split(";")[0] == kind
    assert "version=0.0.4" in told if kind == "text/plain" else "version=1.0.0" in told


HOSTILE = st.text(max_size=30) | st.sampled_from(['"', "\\", "\n", "a\x1b[31m", "\u202e", "#", "{}"])


@settings(max_examples=60, deadline=None)
@given(st.lists(HOSTILE, max_size=6), HOSTILE)
def test_hostile_names_stay_labels(names: list[str], cpu: str) -> None:
    """Names from outside cannot break out of their label in either format, and none is lost."""
    sample = NodeSample(1.0, sensors=tuple(SensorReading(name, 1.0) for name in names))
    identity = NodeIdentity(cpu=cpu)
    for accept, parse in ((None, text_families), (OPENMETRICS, openmetrics_families)):
        body, _ = page(identity, sample, accept=accept)
        found = values(list(parse(body.decode())))
        assert len([name for name, _ in found if name == "sensor_temperature_celsius"]) == len(names)


@pytest.mark.outside
async def test_promtool_finds_nothing_to_say() -> None:
    """Debian's promtool reports no problem for a whole sample, for none and for this machine."""
    promtool = installed("promtool", "prometheus")
    for sample in (big_sample(), await this_machine(), None):
        body, _ = page(IDENTITY, sample, accept=None)
        done = await asyncio.to_thread(
            subprocess.run, [promtool, "check", "metrics"], input=body, capture_output=True, timeout=300
        )
        assert (done.returncode, done.stdout + done.stderr) == (0, b"")
