"""The script that compares our readings with nvidia-smi."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import compare_nvidia_smi as script
from sparktop.model.node import GpuProcess, GpuReading, MigInstance

pytestmark = pytest.mark.outside

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
MIB = 2**20
H200_UUID = "GPU-99999999-2222-3333-4444-555555555555"
READING = GpuReading(
    index=0,
    name="NVIDIA H200",
    uuid=H200_UUID,
    utilization_percent=90.0,
    temperature_c=52.0,
    limit_margin_c=35.0,
    power_w=600.0,
    power_limit_w=700.0,
    sm_clock_mhz=1815,
    sm_clock_max_mhz=1980,
    memory_total_bytes=143_771 * MIB,
    memory_used_bytes=92_160 * MIB,
    throttle_reasons=("software power cap",),
    throttled_percent={"software power cap": 25.0},
    processes=(GpuProcess(4242, "VLLM::Worker_TP0", 90_112 * MIB, "compute"),),
    energy_j=5.0,
    mig=False,
)


@pytest.fixture(scope="module")
def page() -> dict[str, script.SmiGpu]:
    """Return the parsed page of an H200 and a GB10, from two versions of nvidia-smi."""
    return script.parse((HERE / "nvidia_smi_page.xml").read_text(encoding="utf-8"))


def wrong(after: GpuReading, smi: script.SmiGpu, before: GpuReading = READING) -> list[str]:
    """Return the names of the fields that do not agree."""
    return [line.name for line in script.compare(before, after, smi) if not line.ok]


def test_a_page_is_read_in_our_units(page: dict[str, script.SmiGpu]) -> None:
    """Values are in our units: watts, MHz, bytes, seconds; power is the average, as from NVML."""
    gpu = page[H200_UUID]
    assert gpu.fields == {
        "name": "NVIDIA H200",
        "utilization_percent": 87.0,
        "temperature_c": 52.0,
        "limit_margin_c": 35.0,
        "power_w": 612.34,
        "power_limit_w": 700.0,
        "sm_clock_mhz": 1830.0,
        "sm_clock_max_mhz": 1980.0,
        "memory_total_bytes": 143_771.0 * MIB,
        "memory_used_bytes": 92_160.0 * MIB,
        "mig": "no",
    }
    assert gpu.reasons == frozenset({"software power cap"})
    assert gpu.throttled_s["software power cap"] == 7.5
    assert "hardware power brake" not in gpu.throttled_s
    assert gpu.processes == {4242: (90_112.0 * MIB, "compute")}


def test_what_a_page_does_not_tell_is_none(page: dict[str, script.SmiGpu]) -> None:
    """N/A and errors are None, and reasons that are all N/A are not an empty list."""
    gpu = page["GPU-11111111-2222-3333-4444-555555555555"]
    unknown = {name for name, value in gpu.fields.items() if value is None}
    assert unknown == {
        "limit_margin_c",
        "power_w",
        "power_limit_w",
        "memory_total_bytes",
        "memory_used_bytes",
        "mig",
    }  # fmt: skip - one line to read
    assert (gpu.reasons, gpu.processes) == (None, {})


def test_readings_around_a_page_agree(page: dict[str, script.SmiGpu]) -> None:
    """A value between our two readings, or slightly outside, agrees."""
    assert wrong(dataclasses.replace(READING, power_w=640.0, utilization_percent=70.0), page[H200_UUID]) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "NVIDIA H100"),
        ("mig", True),
        ("utilization_percent", 20.0),
        ("temperature_c", 60.0),
        ("limit_margin_c", 87.0),
        ("power_w", 61.2),
        ("power_limit_w", 600.0),
        ("sm_clock_mhz", 500),
        ("sm_clock_max_mhz", 1981),
        ("memory_total_bytes", 143_771 * 10**6),
        ("memory_used_bytes", 92_764 * MIB * 2),
        ("throttle_reasons", ()),
        ("throttle_reasons", ("software power cap", "hardware thermal")),
    ],
)
def test_a_wrong_figure_is_a_mismatch(page: dict[str, script.SmiGpu], field: str, value: object) -> None:
    """Each field can be a mismatch on its own."""
    other = dataclasses.replace(READING, **{field: value})  # type: ignore[arg-type]  # any field in turn
    assert [name.replace(" ", "_") for name in wrong(other, page[H200_UUID], other)] == [field]


@pytest.mark.parametrize("field", ["temperature_c", "power_w", "memory_total_bytes", "throttle_reasons"])
def test_a_figure_that_only_nvidia_smi_knows_is_a_mismatch(
    page: dict[str, script.SmiGpu], field: str
) -> None:
    """A value that only nvidia-smi has is a mismatch; one that only we have is not."""
    lost = dataclasses.replace(READING, **{field: None})  # type: ignore[arg-type]  # any field in turn
    assert [name.replace(" ", "_") for name in wrong(lost, page[H200_UUID], lost)] == [field]
    gb10 = page["GPU-11111111-2222-3333-4444-555555555555"]
    assert "power_limit_w" not in wrong(READING, gb10)


def test_processes_are_held_against_each_other(page: dict[str, script.SmiGpu]) -> None:
    """A missing or additional process, another size and another kind are each one mismatch."""
    smi = page[H200_UUID]
    for processes in (
        (),
        (*(READING.processes or ()), GpuProcess(7, "x", MIB, "compute")),
        (GpuProcess(4242, "x", 10 * MIB, "compute"),),
        (GpuProcess(4242, "x", 90_112 * MIB, "graphics"),),
    ):
        other = dataclasses.replace(READING, processes=processes)
        assert len(wrong(other, smi, other)) == 1


def test_throttled_shares_are_compared_over_the_same_time(page: dict[str, script.SmiGpu]) -> None:
    """Throttled shares are computed from nvidia-smi's microseconds over the same time."""
    first = page[H200_UUID]
    second = dataclasses.replace(
        first, throttled_s={word: count + 0.5 for word, count in first.throttled_s.items()}
    )
    shares = script.between(first, second, 2.0)
    assert shares["software power cap"] == 25.0
    for ours, ok in ((25.0, True), (0.025, False), (None, False)):
        lines = script.compare(READING, READING, second, {"software power cap": (ours, 25.0)})
        assert [line.ok for line in lines if line.name.startswith("throttled:")] == [ok]


def test_mig_instances_are_compared_in_their_order(page: dict[str, script.SmiGpu]) -> None:
    """MIG instances are compared in order, by number and memory."""
    smi = dataclasses.replace(page[H200_UUID], mig_totals=(9984.0 * MIB,))
    assert wrong(READING, smi) == ["mig instances"]
    right = dataclasses.replace(READING, mig_instances=(MigInstance(0, memory_total_bytes=9984 * MIB),))
    assert wrong(right, smi) == []
    other = dataclasses.replace(READING, mig_instances=(MigInstance(0, memory_total_bytes=1),))
    assert wrong(other, smi) == ["mig 0 memory"]


def test_the_table_says_what_is_wrong(page: dict[str, script.SmiGpu]) -> None:
    """The table has a line per field with both values, the difference and the result."""
    other = dataclasses.replace(READING, temperature_c=60.0)
    text = script.table("NVIDIA H200", script.compare(READING, other, page[H200_UUID]))
    assert "| temperature_c | 52 … 60 | 52 |  | ok |" in text
    text = script.table("NVIDIA H200", script.compare(other, other, page[H200_UUID]))
    assert "| temperature_c | 60 | 52 | 8 | NO |" in text
    assert "| memory_total_bytes | 143771 MiB | 143771 MiB |  | ok |" in text


def test_without_a_gpu_the_script_says_so(tmp_path: Path) -> None:
    """Without a GPU the script ends with exit code 3 and one line."""
    (tmp_path / "libnvidia-ml.so.1").touch()
    env = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    command = [sys.executable, str(ROOT / "scripts" / "compare_nvidia_smi.py")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=30, check=False)  # noqa: S603 - fixed
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "nothing to compare: no NVIDIA driver on this machine\n"
