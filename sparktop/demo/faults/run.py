"""Lets faults befall a simulated engine, in real or virtual time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from sparktop.demo.faults.fault import NO_SYMPTOMS, Bursts, Fault, FaultTimes, Symptoms
from sparktop.simulation.gauges import Gauges

Hold = Callable[[Gauges | None, Sequence[float | None]], None]
"""Holds up an engine as `Engine.hold` does, at the current time."""
Later = Callable[[float, Callable[[], object]], object]
"""Schedules a call, a number of seconds from now."""


class ShowsSymptoms(Protocol):
    """A machine whose samples show a fault."""

    symptoms: Symptoms


class FaultRun:
    """One fault of one engine: `begin` and `end` may follow each other any number of times."""

    def __init__(
        self,
        fault: Fault,
        gauges: Callable[[], Gauges],
        machines: Sequence[ShowsSymptoms],
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
        self._draw(fault.power_w)
        for place, machine in enumerate(self._machines):
            machine.symptoms = fault.symptoms[min(place, len(fault.symptoms) - 1)]
        if fault.bursts is not None:
            self._burst(fault.bursts)

    def end(self) -> None:
        """End the fault, after which the engine continues; do nothing if the fault has not begun."""
        if self._shown is not None:
            self._shown = None
            self._draw((None,))
        for machine in self._machines:
            machine.symptoms = NO_SYMPTOMS

    def repeat(self, times: FaultTimes) -> None:
        """Begin and end the fault at these times, counted from now, for ever."""
        self._later(times.first_s, lambda: self._round(times))

    def _round(self, times: FaultTimes) -> None:
        self.begin()
        self._later(times.for_s, self.end)
        self._later(times.every_s, lambda: self._round(times))

    def _burst(self, bursts: Bursts) -> None:
        if self._shown is not None:
            self._draw((bursts.power_w,))
            self._later(bursts.for_s, self._rest)
            self._later(bursts.every_s, lambda: self._burst(bursts))

    def _rest(self) -> None:
        if self._shown is not None:
            self._draw(self._fault.power_w)

    def _draw(self, power_w: tuple[float | None, ...]) -> None:
        self._hold(self._shown, power_w)
