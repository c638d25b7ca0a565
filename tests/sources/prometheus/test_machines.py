"""Machines through a Prometheus: exporters joined, servers placed, figures in their units."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import permutations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sparktop.agent.exposition import page
from sparktop.model.failure import FailureKind
from sparktop.model.node import CpuReading, GpuReading, MemoryPart, MemoryReading, NodeSample
from sparktop.net.failure import AnswerError
from sparktop.sources.prometheus.client import PrometheusClient, TimeSeries
from sparktop.sources.prometheus.found import FoundServer, ScrapeKey
from sparktop.sources.prometheus.machines import (
    MARKS,
    ScrapedMachine,
    aggregates,
    found_exporters,
    gpus_of,
    host_of,
    join_exporters,
    newest_samples,
    placing_among,
    sample_of,
)
from tests.known import known


class Answering(PrometheusClient):
    """A client whose queries for raw samples return the same series."""

    def __init__(self, *series: TimeSeries) -> None:
        self._series = series

    async def query(self, promql: str, add: Callable[[TimeSeries], None] | None = None) -> list[TimeSeries]:
        """Add the series for a query of raw samples; nothing for others."""
        assert add is not None
        for one in self._series if promql.endswith("s]") else ():
            add(one)
        return []


def joined(*series: TimeSeries) -> ScrapedMachine:
    """Return the only machine that these series are of."""
    (machine,) = join_exporters(found_exporters(one for one in series if one.labels["__name__"] in MARKS))
    return machine


async def read(*series: TimeSeries) -> NodeSample:
    """Return the sample of the only machine that these series are of."""
    machine = joined(*series)
    return known(sample_of(machine, await newest_samples(Answering(*series), "", [machine], 15.0), 100.0))


class Failing(PrometheusClient):
    """A client whose first query never ends, and whose others fail."""

    def __init__(self) -> None:
        self.asked = self.ended = 0

    async def query(self, promql: str, add: Callable[[TimeSeries], None] | None = None) -> list[TimeSeries]:  # noqa: ARG002 - as of the class
        """Wait until cancelled, or fail."""
        self.asked += 1
        if self.asked > 1:
            raise AnswerError(FailureKind.REFUSED, "refused")
        try:
            await asyncio.Event().wait()
        finally:
            self.ended += 1
        raise AssertionError


async def test_a_failed_query_ends_the_others() -> None:
    """None goes on at the Prometheus for an answer that nobody reads."""
    client = Failing()
    with pytest.raises(AnswerError):
        await aggregates(client, "", MARKS.values())
    assert client.ended == 1


def one(name: str, value: str, **labels: str) -> TimeSeries:
    """Return a series of an exporter on the host h."""
    job = "dcgm" if name.startswith("DCGM") else "node"
    return TimeSeries({"__name__": name, "job": job, "instance": "h:1", **labels}, [(5.0, value)])


def gpu(name: str, value: str, **labels: str) -> TimeSeries:
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
    text = page(None, truth).decode()
    added = {"job": "agent", "instance": "h:9750"}
    series = [
        TimeSeries({**sample.labels, "__name__": sample.name, **added}, [(5.0, repr(sample.value))])
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]
    found = await read(*series)
    assert found == truth


@pytest.mark.parametrize(("value", "percent"), [("0.96", 96.0), ("1", 100.0), ("0", 0.0), ("96", 96.0)])
async def test_a_name_that_was_a_percentage_before_is_a_ratio(value: str, percent: float) -> None:
    """DCGM 4.7 gives the name that was a percentage in 4.5 to a ratio from 0 to 1: both are read."""
    sample = await read(gpu("GPU_TEMP_CELSIUS", "52"), gpu("GPU_UTIL_RATIO", value))
    assert sample.gpus[0].utilization_percent == percent


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


@pytest.mark.parametrize("value", ["NaN", "x", "9223372036854775792"])
async def test_what_is_no_number_is_unknown(value: str) -> None:
    """Also DCGM's marks of an unknown value."""
    found = await read(gpu("GPU_TEMP", "61"), gpu("POWER_USAGE", value), gpu("CLOCK_THROTTLE_REASONS", "-1"))
    assert found.gpus[0].power_w is None
    assert found.gpus[0].throttle_reasons is None


def instances(uuid: str, index: int) -> list[TimeSeries]:
    """Return what dcgm-exporter writes of a card in MIG mode: only its instances."""
    found: list[TimeSeries] = []
    for number in range(4):
        labels = {"gpu": str(index), "UUID": uuid, "GPU_I_PROFILE": "1g.20gb", "GPU_I_ID": str(number)}
        found += [
            gpu("GPU_TEMP", "52", **labels),
            gpu("POWER_USAGE", "400", **labels),
            gpu("FB_USED", "1024", **labels),
            gpu("FB_FREE", "19456", **labels),
        ]
    return found


async def test_instances_of_a_card_are_one_gpu() -> None:
    """With MIG only instances are written: two cards are two GPUs, with the memory of all their instances."""
    series = [*instances("GPU-1", 0), *instances("GPU-2", 1)]
    found = await read(*series)
    assert [(one.index, one.uuid) for one in found.gpus] == [(0, "GPU-1"), (1, "GPU-2")]
    figures = [(52, 400, 4 << 30, 80 << 30)] * 2
    assert figures == [
        (one.temperature_c, one.power_w, one.memory_used_bytes, one.memory_total_bytes) for one in found.gpus
    ]
    assert gpus_of(joined(*series), {}) == 2


async def test_a_card_that_is_written_beside_its_instances_counts_once() -> None:
    """dcgm-exporter can be told to write both; the memory of the card is that of the card."""
    card = [gpu("GPU_TEMP", "52", UUID="GPU-1"), gpu("FB_USED", "4096", UUID="GPU-1")]
    for series in ([*card, *instances("GPU-1", 0)], [*instances("GPU-1", 0), *card]):
        (only,) = (await read(*series)).gpus
        assert only.memory_used_bytes == 4 << 30


async def test_shares_of_a_card_are_one_gpu() -> None:
    """Time slicing repeats each figure with a label vgpu: nothing is added up, and the card counts once."""
    series = [
        gpu(name, value, vgpu=str(number))
        for number in range(4)
        for name, value in (("GPU_TEMP", "61"), ("FB_USED", "1024"), ("FB_FREE", "1024"), ("GPU_UTIL", "80"))
    ]
    (only,) = (await read(*series)).gpus
    assert (only.memory_used_bytes, only.memory_total_bytes) == (1 << 30, 2 << 30)
    assert only.utilization_percent == 80
    assert gpus_of(joined(*series), {}) == 1


async def test_nvidia_gpu_exporter_is_read() -> None:
    """Its figures have the label uuid only; index and name come from its information series."""

    def smi(metric: str, value: str, uuid: str, **more: str) -> TimeSeries:
        labels = {"__name__": f"nvidia_smi_{metric}", "job": "gpu", "instance": "h:9835", "uuid": uuid}
        return TimeSeries(labels | more, [(5.0, value)])

    def card(uuid: str, index: str, used: str) -> list[TimeSeries]:
        return [
            smi("utilization_gpu_ratio", "0.96", uuid),
            smi("temperature_gpu", "61", uuid),
            smi("power_draw_watts", "38.25", uuid),
            smi("clocks_current_sm_clock_hz", "2.411e+09", uuid),
            smi("clocks_event_reasons_active", "4", uuid),
            smi("memory_used_bytes", used, uuid),
            smi("gpu_info", "1", uuid, index=index, name="NVIDIA GB10", driver_version="580.126"),
        ]

    found = await read(*card("b", "1", "7"), *card("a", "0", "5"))
    assert [(one.index, one.uuid, one.memory_used_bytes) for one in found.gpus] == [(0, "a", 5), (1, "b", 7)]
    first = found.gpus[0]
    assert (first.name, first.temperature_c, first.power_w) == ("NVIDIA GB10", 61, 38.25)
    assert (first.sm_clock_mhz, first.throttle_reasons) == (2411, ("software power cap",))
    assert first.utilization_percent == pytest.approx(96)


# Exporters joined to machines, and servers placed on them: by names and addresses, never by order.

NAMES = {"dcgm": "DCGM_FI_DEV_GPU_TEMP", "node": "node_uname_info", "agent": "sparktop_node_info"}
HOST_LABEL = {"dcgm": "Hostname", "node": "nodename", "agent": "hostname"}


def exporter(kind: str, instance: str, host: str = "", **more: str) -> TimeSeries:
    """Return the series that marks an exporter."""
    labels = {"__name__": NAMES[kind], "job": kind, "instance": instance, **more}
    return TimeSeries(labels | ({HOST_LABEL[kind]: host} if host else {}), [(1.0, "1")])


def machines(*series: TimeSeries) -> tuple[ScrapedMachine, ...]:
    """Return the machines of these series, which are the same in each order."""
    orders = [join_exporters(found_exporters(some)) for some in permutations(series)]
    shapes = {tuple((one.name, len(one.exporters)) for one in found) for found in orders}
    assert len(shapes) == 1
    return orders[0]


def server(instance: str, pod: tuple[str, str] | None = None, node: str = "") -> FoundServer:
    """Return a server at an address, in a pod or on a node of Kubernetes."""
    return FoundServer(ScrapeKey("vllm", instance), instance, "vllm", "http://x", "m", "g", pod, node)


@pytest.mark.parametrize(
    ("series", "names"),
    [
        # One host name, in several spellings, at addresses of their own.
        (
            [exporter("dcgm", "10.1.0.9:9400", "Spark-1"), exporter("node", "10.0.0.1:9100", "spark-1.lab")],
            ["spark-1"],
        ),
        # Containers report names that no other has: the address joins.
        (
            [exporter("dcgm", "h1:9400", "0a1b2c3d4e5f"), exporter("node", "h1:9100", "f5e4d3c2b1a0")],
            ["h1"],
        ),
        # Without any name.
        ([exporter("dcgm", "10.0.0.1:9400"), exporter("agent", "10.0.0.1:9750", "spark-1")], ["spark-1"]),
        # Two of a kind behind one address are two machines.
        ([exporter("dcgm", "gw:9401", "a"), exporter("dcgm", "gw:9402", "b")], ["a", "b"]),
        # Tunnels end at loopback: different names there are different machines.
        ([exporter("dcgm", "localhost:1", "a"), exporter("node", "localhost:2", "b")], ["a", "b"]),
        ([exporter("dcgm", "localhost:1", "a"), exporter("node", "localhost:2", "a")], ["a"]),
        # Clusters may use the same names.
        (
            [exporter("dcgm", "x:1", "a", cluster="one"), exporter("node", "y:1", "a", cluster="two")],
            ["a", "two/a"],
        ),
        # A short name that fits two long ones belongs to none.
        (
            [
                exporter("agent", "x:1", "a"),
                exporter("node", "y:1", "a.lab"),
                exporter("dcgm", "z:1", "a.home"),
            ],
            ["a", "a.home", "a.lab"],
        ),
        # Kubernetes: the node's name joins a pod's exporter.
        ([exporter("dcgm", "10.2.0.1:9400", node="n1"), exporter("node", "10.0.0.1:9100", "n1")], ["n1"]),
    ],
)
def test_exporters_of_one_machine_are_joined(series: list[TimeSeries], names: list[str]) -> None:
    """In any order of the answer."""
    assert [one.name for one in machines(*series)] == names


def test_servers_are_placed_by_pod_then_node_then_address() -> None:
    """What fits two machines or none has no machine; the configuration decides before all."""
    pod = {"exported_namespace": "llm", "exported_pod": "llm-0", "namespace": "gpu", "pod": "dcgm-x"}
    found = machines(
        exporter("dcgm", "10.2.0.1:9400", "n1", **pod),
        exporter("node", "10.0.0.2:9100", "n2"),
        exporter("dcgm", "gw:9401", "a"),
        exporter("dcgm", "gw:9402", "b"),
    )
    place = placing_among(found, {"service:8000": ("N1", "n2", "unknown")})
    assert place(server("10.2.9.9:8000", ("llm", "llm-0"))) == ("n1",)
    assert place(server("10.2.9.9:8000", ("other", "llm-0"))) == ()
    assert place(server("10.2.9.9:8000", node="n2")) == ("n2",)
    assert place(server("10.0.0.2:8000")) == ("n2",)
    assert place(server("gw:8000")) == ()
    assert place(server("service:8000")) == ("n1", "n2")


def test_labels_from_outside_are_cleaned() -> None:
    """Control characters, long names and invalid addresses are cleaned; equal names get numbers."""
    found = machines(
        exporter("dcgm", "[bad", "a\x1b[31m" + "b" * 100, modelName="x\ny"),
        exporter("dcgm", "h\x00:9400", "c", cluster="\x1b"),
    )
    assert all(one.name.isprintable() and len(one.name) <= 64 for one in found)
    assert found[0].fact("modelName") in {"x y", None}
    assert host_of("[bad") == ""
    assert host_of("https://Spark-1.:9400/metrics") == "spark-1"
