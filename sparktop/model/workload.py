"""Processes of inference engines on a machine: role, rank, model and container."""

from __future__ import annotations

from dataclasses import dataclass

COMPILERS = frozenset({"nvcc", "cicc", "ptxas", "ninja", "cc1plus"})
"""Names of the programs that compile kernels for an engine."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A process of an inference engine, or another process that holds GPU memory."""

    pid: int
    engine: str | None = None
    """Name of the engine, such as "vllm"; None if the command line is not that of a known engine."""
    role: str | None = None
    """What the process does in its engine, such as "engine core" or "worker"."""
    rank: str | None = None
    """Its ranks, such as "DP0 TP1"; None where its title names none."""
    model: str | None = None
    """Name of the model from the command line of its server, without the folders of a path."""
    port: int | None = None
    """Port on which the server answers by its command line; only of a server's own process."""
    server: int | None = None
    """Process ID of the server that started it; its own if it is the server."""
    container: str | None = None
    """First 12 digits of the container's ID; None outside of containers."""
    container_name: str | None = None
    """None unless the reader may use the socket of Docker or Podman."""
    age_s: float | None = None
    """Seconds since the process started, at the time of the sample."""
    memory_bytes: int | None = None
    """Resident set size."""
    cpu_percent: float | None = None
    """CPU use since the previous reading; 100 is one core."""
    read_bytes: int | None = None
    """Bytes read from disks since its start; None for processes of other users, which only root may see."""
    checkpoint_bytes: int | None = None
    """Size of the files with the model's weights; only of a server whose folder the reader may list."""
    oom_kills: int | None = None
    """Processes of its container that the kernel has killed for lack of memory; None outside of one."""

    @property
    def about(self) -> str:
        """Role and rank in words: "engine core DP0"; "" if neither is known."""
        return " ".join(part for part in (self.role, self.rank) if part)

    @property
    def box(self) -> str | None:
        """Name of the container, else the first digits of its ID; None outside of containers."""
        return self.container_name or self.container


@dataclass(frozen=True, slots=True)
class Workloads:
    """The workloads of a machine at one time."""

    processes: tuple[Workload, ...] = ()
    """Sorted by process ID."""
    compilers: int | None = None
    """Number of processes of the programs in `COMPILERS`."""
    age_s: float | None = None
    """Seconds since they were read: that happens less often than the rest of the sample."""

    def of(self, pid: int) -> Workload | None:
        """Return the workload with this process ID; None if there is none."""
        return next((one for one in self.processes if one.pid == pid), None)
