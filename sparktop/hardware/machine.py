"""Reads all parts of one machine (CPU, memory, GPUs, network, sensors) and returns them as one sample."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from sparktop.hardware.cpu import CpuReader
from sparktop.hardware.gpu import GpuReader, NvmlModule
from sparktop.hardware.identity import IdentityReader
from sparktop.hardware.kernel_file import Seldom
from sparktop.hardware.kernel_log import KernelLogReader
from sparktop.hardware.memory import MemoryReader, read_cpuless_nodes, read_meminfo, without_gpus
from sparktop.hardware.network import NetworkReader, RdmaReader
from sparktop.hardware.processes import ContainerReader, ProcessTableReader, WorkloadReader
from sparktop.hardware.sensors import RAILS_AGAIN_S, SENSORS_AGAIN_S, read_rails, read_sensors
from sparktop.hardware.setup import SetupReader
from sparktop.model.node import NodeIdentity, NodeSample

_MILLI = 1000.0
_COMPUTING_ROLES = frozenset({"engine core", "worker", "scheduler"})
"""Roles of an engine's processes that compute, where the driver does not list processes."""


class Machine:
    """Reads CPU, memory, GPUs, network and sensors of the machine.

    The methods block, and must not be called from several threads at the same time.
    """

    def __init__(
        self,
        root: Path = Path("/"),
        *,
        nvml: NvmlModule | None = None,
        clock: Callable[[], float] = time.monotonic,
        journal: bool = False,
    ) -> None:
        """Create a reader of /proc and /sys below `root`, and of GPUs through `nvml` (None: nvidia-ml-py).

        `clock` returns seconds; samples are dated by it. With `journal`, the journal of this machine is asked
        how the boot before this one ended.
        """
        self._root = root
        self._clock = clock
        self._cpu = CpuReader(root)
        self._memory = MemoryReader(root)
        self._gpu = GpuReader(root, nvml)
        self._network = NetworkReader(root)
        self._rdma = RdmaReader(root)
        self._sensors = Seldom(partial(read_sensors, root), SENSORS_AGAIN_S)
        self._rails = Seldom(partial(read_rails, root), RAILS_AGAIN_S)
        containers = ContainerReader(root)
        self._processes = ProcessTableReader(root, containers=containers)
        self._workloads = WorkloadReader(root, containers=containers)
        self._kernel = KernelLogReader(root)
        self._setup = SetupReader(root)
        self._identity = IdentityReader(root, journal=journal)

    @property
    def identity(self) -> NodeIdentity | None:
        """The machine's identity; None before the first reading.

        The same object is returned until a field changes.
        """
        return self._identity.identity

    def read(self, *, processes: bool = False) -> NodeSample:
        """Read the machine and return a sample; values that the machine does not report are None or empty.

        The process table is read only if `processes` is true.
        """
        now = self._clock()
        cpu = self._cpu.read(now)
        meminfo = read_meminfo(self._root)
        nodes = read_cpuless_nodes(self._root)
        network = (*self._network.read(now), *self._rdma.read(now))
        machine_bytes = meminfo.get("MemTotal")
        if machine_bytes is not None:  # MemTotal has the nodes without CPUs, too
            machine_bytes -= sum(node["MemTotal"] for node in nodes)
        gpus = self._gpu.read(now, machine_bytes, has_own_node=bool(nodes))
        gpu_bytes = [gpu.memory_total_bytes for gpu in gpus.gpus if gpu.memory_total_bytes]
        meminfo, gpu_nodes_bytes = without_gpus(meminfo, nodes, gpu_bytes)
        memory = self._memory.read(
            now,
            meminfo,
            unified=gpus.unified,
            gpu_processes_bytes=gpus.processes_bytes,
            gpu_nodes_bytes=gpu_nodes_bytes,
        )
        table = self._processes.read(now) if processes else None
        on_gpu = {process.pid for gpu in gpus.gpus for process in gpu.processes or ()}
        workloads = self._workloads.read(now, on_gpu)
        computing = [
            process.pid
            for process in workloads.processes
            if process.pid in on_gpu or process.role in _COMPUTING_ROLES
        ]
        setup = self._setup.read(now, computing, gpu_firmware=self._gpu.firmware)
        self._identity.read(now, driver=self._gpu.driver, cpu=self._cpu.line, setup=setup)
        return NodeSample(
            at=now,
            cpu=cpu,
            memory=memory,
            gpus=gpus.gpus,
            gpu_note=gpus.note,
            gpus_lost=gpus.lost,
            network=network,
            sensors=self._sensors.at(now),
            rails=self._rails.at(now),
            processes=table,
            workloads=workloads,
            kernel=self._kernel.read(now),
            cost_ms=(self._clock() - now) * _MILLI,
        )

    def close(self) -> None:
        """Close the NVIDIA driver's library; a later `read` opens it again."""
        self._gpu.close()
        self._kernel.close()
