"""What a fault does to a simulated engine, to the gauges on its metrics page and to its machines."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from sparktop.model.node import ProcessReading
from sparktop.simulation.gauges import Gauges


class Symptoms(Struct, frozen=True):
    """What a fault changes in the samples of one machine."""

    engine_cpu_percent: float | None = None
    """CPU use of the engine's process in percent of a core; None: as without a fault."""
    engine_gone: bool = False
    """Whether the engine's process on this machine has ended."""
    rank_lags: bool = False
    """Whether NCCL reports that this machine's rank has launched one AllReduce fewer than the others."""
    programs: tuple[ProcessReading, ...] = ()
    """Processes that run in addition."""
    swap_in_bytes_per_s: float = 0.0


NO_SYMPTOMS = Symptoms()


class Bursts(Struct, frozen=True):
    """Short bursts of GPU work while no step is completed."""

    power_w: float
    for_s: float
    every_s: float


def unchanged(gauges: Gauges) -> Gauges:
    """Return the gauges as they are: those of an engine that hangs keep their values."""
    return gauges


class Fault(Struct, frozen=True):
    """Something that stops a simulated engine between two steps, for a time."""

    name: str
    about: str
    power_w: tuple[float | None, ...] = (None,)
    """Power of each of the engine's machines meanwhile, None for an idle GPU; the last value is repeated for
    further machines."""
    symptoms: tuple[Symptoms, ...] = (NO_SYMPTOMS,)
    """What each of the engine's machines shows; the last value is repeated for further machines."""
    gauges: Callable[[Gauges], Gauges] = unchanged
    """Returns the gauges on the metrics page meanwhile, from those at the begin."""
    bursts: Bursts | None = None
    stuck: bool = True
    """Whether a monitor should call the engine stuck; False: it goes on by itself, or rests on purpose."""


class FaultTimes(Struct, frozen=True):
    """When a fault befalls one server of a scenario."""

    fault: Fault
    first_s: float
    """Seconds from the start of the server to the first time."""
    for_s: float
    every_s: float
    """Seconds from one begin to the next."""
    backend: int = 0
    """Index of the server."""
