"""Faults of the simulated cluster: engines that hang or only seem to, and what their machines then show.

Figures of hangs are those reported from GB10 machines: 13 to 21 W at 96 % utilisation for a kernel that never
ends, 46 W in a long prefill. A hang keeps all gauges on vLLM's metrics page at their last values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from sparktop.demo.machine import NO_SYMPTOMS, MachineReader, Symptoms
from sparktop.model.node import ProcessReading
from sparktop.simulation.engine import Gauges


class Fault(Struct, frozen=True):
    """Something that stops a simulated engine between two steps, for a time."""

    name: str
    symptoms: tuple[Symptoms, ...]
    """What each of the engine's machines shows; the last value is repeated for further machines."""
    power_w: tuple[float | None, ...] = (None,)
    """Power of each of the engine's machines meanwhile, None for an idle GPU; the last value is repeated for
    further machines."""
    gauges: Callable[[Gauges], Gauges] = lambda gauges: gauges
    """Returns the gauges on the metrics page meanwhile, from those at the begin; those of an engine that
    hangs keep their values."""
    bursts: tuple[float, float, float] | None = None
    """Short bursts of GPU work while no step is completed: their power in watts, their duration in seconds,
    and the seconds from one to the next."""
    stuck: bool = True
    """Whether a monitor should call the engine stuck; False: it goes on by itself, or rests on purpose."""


_FIRST_S, _FOR_S, _EVERY_S = 45.0, 240.0, 420.0
"""Seconds from the start of a server to its fault, of the fault, and from one begin to the next."""
_SPINNING = Symptoms(engine_cpu_percent=100.0)
"""A worker that waits for its GPU polls without a pause, and keeps one core busy."""
_AT_REST = Symptoms(engine_cpu_percent=1.0)
_ASLEEP = Symptoms(engine_cpu_percent=1.0, engine_bytes=1 << 30, others_bytes=52 << 30)
"""What it gave back is partly another program's."""
_COMPILERS = tuple(
    ProcessReading(pid, name, mib << 20, cpu_percent)
    for pid, name, mib, cpu_percent in (
        (7301, "ninja", 14, 0.4),
        (7302, "nvcc", 38, 1.0),
        (7303, "cicc", 890, 99.0),
    )
)


def _gauges_deferred(gauges: Gauges) -> Gauges:
    """Return gauges of an engine whose requests all wait for the KV cache of another server."""
    requests = max(1, gauges.running + gauges.waiting)
    return Gauges(0, requests, gauges.kv_usage, deferred=requests)


FAULTS = {
    fault.name: fault
    for fault in (
        Fault("hang-a", (_SPINNING, replace(_SPINNING, rank_lags=True)), (19.0, 20.4)),
        Fault("hang-b", (_SPINNING,), (18.6,)),
        Fault("hang-blocked", (_AT_REST,)),
        Fault("dead-rank", (_SPINNING, Symptoms(engine_gone=True)), (18.9, None)),
        Fault("huge-step", (_SPINNING,), (46.0,), stuck=False),
        Fault("compile", (Symptoms(engine_cpu_percent=3.0, programs=_COMPILERS),), stuck=False),
        Fault(
            "graph-capture",
            (Symptoms(engine_cpu_percent=96.0),),
            gauges=lambda gauges: replace(gauges, running=max(1, gauges.running)),
            bursts=(38.0, 1.5, 4.0),
            stuck=False,
        ),
        Fault("sleep", (_ASLEEP,), gauges=lambda gauges: replace(gauges, asleep=True), stuck=False),
        Fault("swap-storm", (Symptoms(engine_cpu_percent=6.0, swap_in_bytes_per_s=210e6),), stuck=False),
        Fault("kv-wait", (_AT_REST,), gauges=_gauges_deferred, stuck=False),
        Fault("cpu-step", (Symptoms(engine_cpu_percent=99.5),), stuck=False),
    )
}
"""All faults by name; `sparktop demo --help` describes them."""


Hold = Callable[[Gauges | None, Sequence[float | None]], None]
"""Holds up an engine as `Engine.hold` does, at the current time."""
Later = Callable[[float, Callable[[], object]], object]
"""Schedules a call, a number of seconds from now."""


class FaultRun:
    """One fault of one engine: `begin` and `end` may follow each other any number of times."""

    def __init__(
        self,
        fault: Fault,
        gauges: Callable[[], Gauges],
        machines: Sequence[MachineReader],
        *,
        hold: Hold,
        later: Later,
    ) -> None:
        """Prepare the fault; `gauges` returns those of the engine, and `machines` are those it runs on."""
        self._fault = fault
        self._gauges = gauges
        self._machines = machines
        self._hold = hold
        self._later = later
        self._shown: Gauges | None = None
        """The gauges while the fault lasts; None before and after."""

    def begin(self) -> None:
        """Hold up the engine, and let its machines show the fault."""
        fault = self._fault
        self._shown = fault.gauges(self._gauges())
        self._hold(self._shown, fault.power_w)
        for index, machine in enumerate(self._machines):
            machine.symptoms = fault.symptoms[min(index, len(fault.symptoms) - 1)]
        if fault.bursts is not None:
            self._repeat_bursts(*fault.bursts)

    def end(self) -> None:
        """End the fault, after which the engine continues; do nothing if the fault has not begun."""
        if self._shown is not None:
            self._shown = None
            self._hold(None, (None,))
        for machine in self._machines:
            machine.symptoms = NO_SYMPTOMS

    def repeat(self, after_s: float = _FIRST_S) -> None:
        """Begin the fault in `after_s` seconds for 4 minutes, and again every 7 minutes, for ever."""
        self._later(after_s, self.begin)
        self._later(after_s + _FOR_S, self.end)
        self._later(after_s, lambda: self.repeat(_EVERY_S))

    def _repeat_bursts(self, power_w: float, for_s: float, every_s: float) -> None:
        def end_burst() -> None:
            if self._shown is not None:
                self._hold(self._shown, self._fault.power_w)

        if self._shown is not None:
            self._hold(self._shown, (power_w,))
            self._later(for_s, end_burst)
            self._later(every_s, lambda: self._repeat_bursts(power_w, for_s, every_s))
