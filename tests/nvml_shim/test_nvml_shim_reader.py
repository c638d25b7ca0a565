"""GPUs read by the reader that is sent over ssh: nvidia-ml-py from its zip file, with a driver in C."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

from sparktop.model.node import GpuReading
from sparktop.sources.decode import WireError, decode
from sparktop.sources.ssh_remote import reader_bundle
from tests.known import known
from tests.nvml_shim import shim_states as states
from tests.nvml_shim.conftest import Shim
from tests.programs import killed
from tests.sources.ssh.pythons import VERSIONS, python

pytestmark = pytest.mark.process


def read(shim: Shim, program: str, state: str, folder: Path) -> tuple[GpuReading, ...]:
    """Run the reader without any installed package; return the GPUs of its first sample.

    A busy machine may answer with an error or without a sample: the reading takes longer than it may.
    """
    file, state_file = folder / "reader.pyz", folder / "state"
    file.write_bytes(reader_bundle().data)
    state_file.write_text(state, encoding="utf-8")
    driver = {"LD_LIBRARY_PATH": str(shim.folder), "NVML_SHIM_STATE": str(state_file)}
    process = subprocess.Popen(  # noqa: S603 - our own program
        [program, "-I", "-S", "-B", str(file)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **driver, "NVML_SHIM_LOG": str(folder / "log")},
        cwd=folder,
    )
    end = time.monotonic() + 120
    with killed(process):
        while time.monotonic() < end:
            known(process.stdin).write(b"{}\n")
            known(process.stdin).flush()
            with suppress(WireError):
                reply = decode(known(process.stdout).readline())
                if reply.samples:
                    assert reply.identity.driver == "580.126.09"
                    return reply.samples[-1].gpus
    raise AssertionError("no sample within 120 s")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_gb10_is_read_with_each_python(shim: Shim, version: str, tmp_path: Path) -> None:
    """Each Python version reads load, heat, power, clock, throttling and processes of a GB10."""
    (gpu,) = read(shim, python(version), states.gb10(), tmp_path)
    assert gpu.name == "NVIDIA GB10"
    assert (gpu.utilization_percent, gpu.temperature_c, gpu.limit_margin_c) == (96.0, 81.0, 13.0)
    assert (gpu.power_w, gpu.sm_clock_mhz, gpu.memory_total_bytes) == (38.25, 2411, None)
    assert gpu.throttle_reasons
    assert {process.pid for process in known(gpu.processes)} == {4242, 900}
