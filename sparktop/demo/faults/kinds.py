"""The faults that the simulated cluster knows: engines that hang, and engines that only seem to.

Figures of hangs are those reported from GB10 machines: 13 to 21 W at 96 % utilisation for a kernel that never
ends, 46 W in a long prefill. A hang keeps all gauges on vLLM's metrics page at their last values.
"""

from __future__ import annotations

from msgspec.structs import replace

from sparktop.demo.faults.fault import Bursts, Fault, Symptoms
from sparktop.model.node import ProcessReading
from sparktop.simulation.gauges import Gauges

_MIB = 2**20
_SPINNING = Symptoms(engine_cpu_percent=100.0)
"""A worker that waits for its GPU polls without a pause, and keeps one core busy."""
_AT_REST = Symptoms(engine_cpu_percent=1.0)


def _program(pid: int, name: str, mib: int, cpu_percent: float) -> ProcessReading:
    return ProcessReading(pid, name, mib * _MIB, cpu_percent)


def _asleep(gauges: Gauges) -> Gauges:
    return replace(gauges, asleep=True)


def _deferred(gauges: Gauges) -> Gauges:
    """Return gauges of an engine whose requests all wait for the KV cache of another server."""
    held = max(1, gauges.running + gauges.waiting)
    return Gauges(0, held, gauges.kv_usage, deferred=held)


def _first_request(gauges: Gauges) -> Gauges:
    return replace(gauges, running=max(1, gauges.running))


HANG_A = Fault(
    "hang-a",
    "ranks diverge in a collective call: the GPUs spin at low power",
    (19.0, 20.4),
    (_SPINNING, replace(_SPINNING, rank_lags=True)),
)
HANG_B = Fault("hang-b", "a kernel never ends: the GPU spins at low power", (18.6,), (_SPINNING,))
BLOCKED = Fault("hang-blocked", "the engine waits for a lock: GPU and CPU rest", (None,), (_AT_REST,))
DEAD_RANK = Fault(
    "dead-rank",
    "the process of the last rank has ended, and the others wait for it",
    (18.9, None),
    (_SPINNING, Symptoms(engine_gone=True)),
)
HUGE_STEP = Fault(
    "huge-step",
    "one step takes minutes: nothing is counted, but the GPU works",
    (46.0,),
    (_SPINNING,),
    stuck=False,
)
COMPILE = Fault(
    "compile",
    "a kernel is compiled while requests wait: the GPU rests",
    (None,),
    (
        Symptoms(
            engine_cpu_percent=3.0,
            programs=(
                _program(7301, "ninja", 14, 0.4),
                _program(7302, "nvcc", 38, 1.0),
                _program(7303, "cicc", 890, 99.0),
            ),
        ),
    ),
    stuck=False,
)
CAPTURE = Fault(
    "graph-capture",
    "the first request after a start waits for CUDA graphs: short bursts of GPU work",
    (None,),
    (Symptoms(engine_cpu_percent=96.0),),
    _first_request,
    Bursts(38.0, 1.5, 4.0),
    stuck=False,
)
SLEEP = Fault(
    "sleep", "sleep mode: the weights are in host memory", (None,), (_AT_REST,), _asleep, stuck=False
)
SWAP_STORM = Fault(
    "swap-storm",
    "memory is swapped in and out: nothing else happens",
    (None,),
    (Symptoms(engine_cpu_percent=6.0, swap_in_bytes_per_s=210e6),),
    stuck=False,
)
KV_WAIT = Fault(
    "kv-wait",
    "requests wait for the KV cache of a prefill server",
    (None,),
    (_AT_REST,),
    _deferred,
    stuck=False,
)
CPU_STEP = Fault(
    "cpu-step",
    "a grammar is compiled on one core of the engine: the GPU rests",
    (None,),
    (Symptoms(engine_cpu_percent=99.5),),
    stuck=False,
)

FAULTS = {
    fault.name: fault
    for fault in (
        *(HANG_A, HANG_B, BLOCKED, DEAD_RANK, HUGE_STEP, COMPILE, CAPTURE, SLEEP, SWAP_STORM, KV_WAIT),
        CPU_STEP,
    )
}
"""All faults by name."""
