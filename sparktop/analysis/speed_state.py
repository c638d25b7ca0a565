"""Whether a GPU runs as fast as it should under its load, how near its bandwidth, and its faults (Xids)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from sparktop.model.node import GpuReading, NodeSample
from sparktop.model.snapshot import SpeedState
from sparktop.model.targets import NodeThresholds

# Clock and power are compared with the load, and step times with earlier step times of the same batch size.
# Two faults of a GB10 appear in no throttle reason (reported by users): a power-delivery fault pins the SM
# clock at 500 to 850 MHz, at 15 to 18 W and 95 % load; and an unexplained state makes a step take 94 ms
# instead of 63 at a clock that looks healthy. So the clock alone does not reveal both faults.


UNKNOWN, IDLE, NORMAL, THROTTLED, SLOW_CLOCK, SLOW_STEPS = (
    "unknown",
    "idle",
    "normal",
    "throttled",
    "slow clock",
    "slow steps",
)
"""The states, least informative first, most severe last; step times are judged only where the clock is
normal."""
SLOW_AFTER_S = 10.0
"""A slow clock counts once it has been slow under load for this many seconds."""
CLEARS_AT = 1.2
"""Multiple of the clock limit that a slow clock must reach to count as healthy again."""
LOADED_PERCENT = 80.0
"""GPU utilization in percent from which on a low clock is a fault."""
IDLE_PERCENT = 5.0
"""GPU utilization in percent below which a GPU does nothing."""
AT_LIMIT_C = 3.0
"""A GPU within this many degrees of its thermal limit counts as being at it."""
LOW_POWER_W = 25.0
"""A GB10 under load that draws less is underpowered: 15 to 18 W with the fault, 30 to 45 W while decoding."""
SLOW_SHARE = 0.5
"""A loaded GPU other than a GB10 is slow below this share of its highest clock."""

HEAT = frozenset({"software thermal", "hardware thermal"})
"""Throttle reasons that are due to heat."""
POWER_CAP = "software power cap"
BY_CHOICE = frozenset({"application clocks", "sync boost", "display clock"})
"""Throttle reasons that come from a setting: they lower the clock, but nothing is wrong."""
_GRAVITY = {word: rank for rank, word in enumerate((UNKNOWN, IDLE, NORMAL, THROTTLED, SLOW_CLOCK))}

_USB_PD_FIX = (
    "use the 240 W adapter that came with it, unplug it from the mains for a minute, plug its cable in again"
    " and check it; nvidia-smi -rgc lifts a clock lock"
)
_LOCK_CAUSE = "a clock lock (nvidia-smi -lgc) or a limit that the driver does not report"
_LOCK_FIX = "nvidia-smi -rgc lifts a clock lock; else check power supply and cooling"
_NOT_SEEN = SpeedState()


class Pace(Struct, frozen=True):
    """The speed state of a GPU, and since when its readings have shown a slow clock under load."""

    state: SpeedState = _NOT_SEEN
    slow_since: float | None = None
    """Monotonic seconds; None while the readings show no slow clock."""


class StepPace(Struct, frozen=True):
    """The step time of an engine now, compared with earlier steps of a batch of the same size."""

    backend: str
    now_ms: float
    before_ms: float
    """The best time in this session of steps with as many requests and tokens in the batch."""
    running: float
    """Requests in the batch."""
    slow: bool
    """True once steps have been too slow for some time."""
    healthy: bool = False
    """True where steps are well below the limit for slow."""


def is_gb10(gpu: GpuReading, *, unified: bool | None) -> bool:
    """Return whether a GPU is a GB10: by its name, or without a name by its unified memory."""
    return "GB10" in gpu.name if gpu.name is not None else unified is True


def advance_pace(
    pace: Pace,
    gpu: GpuReading,
    at: float,
    *,
    unified: bool | None,
    shares: Mapping[str, float],
    thresholds: NodeThresholds,
) -> Pace:
    """Return the speed state of a GPU at the time `at` (monotonic seconds); `pace` is its previous state.

    `shares` maps each throttle reason to the percentage of the last minute in which it was active.
    `unified` is True if the machine's memory is unified. A slow clock is reported as "unknown" until it
    has lasted `SLOW_AFTER_S`.
    """
    gb10, was_slow = is_gb10(gpu, unified=unified), pace.state.word == SLOW_CLOCK
    state = _state_of_reading(gpu, shares, thresholds, gb10=gb10, was_slow=was_slow)
    if state.word != SLOW_CLOCK:
        return Pace(state)
    since = at if pace.slow_since is None else pace.slow_since
    if at - since >= SLOW_AFTER_S:
        return Pace(state, since)
    return Pace(SpeedState(UNKNOWN, f"{state.reason}, for {at - since:.0f} s so far"), since)


def worst_state(paces: Mapping[int, Pace]) -> SpeedState:
    """Return the most severe speed state of the GPUs; with several GPUs its reason names the GPU's index."""
    if not paces:
        return SpeedState(UNKNOWN, "no GPU to look at")
    index, pace = max(paces.items(), key=lambda item: (_GRAVITY[item[1].state.word], -item[0]))
    if len(paces) == 1:
        return pace.state
    return replace(pace.state, reason=f"GPU {index}: {pace.state.reason}")


def with_steps(state: SpeedState, steps: Iterable[StepPace], *, gb10: bool) -> SpeedState:
    """Return the speed state "slow steps" if `state` is normal but one of `steps` is slow; else `state`.

    If several engines are slow, the reason names the engine whose step time grew most.
    """
    slow = [step for step in steps if step.slow]
    if state.word != NORMAL or not slow:
        return state
    slowest = max(slow, key=lambda pace: pace.now_ms / pace.before_ms)
    reason = (
        f"{slowest.backend}: {slowest.now_ms:.0f} ms a step at {slowest.running:.0f} running,"
        f" {slowest.before_ms:.0f} ms before; {state.reason}"
    )
    if gb10:
        cause = "an unknown hidden state of the machine: clock and power look healthy"
        return SpeedState(SLOW_STEPS, reason, cause, "restart the machine: that is reported to bring it back")
    cause = "unknown: clock and power look healthy"
    return SpeedState(SLOW_STEPS, reason, cause, "look for other work on the machine; else restart it")


def _state_of_reading(
    gpu: GpuReading,
    shares: Mapping[str, float],
    thresholds: NodeThresholds,
    *,
    gb10: bool,
    was_slow: bool,
) -> SpeedState:
    """Return the speed state that a single reading of a GPU shows.

    `was_slow` is True if the clock was slow before this reading: then it must rise further to count as
    normal.
    """
    use, clock = gpu.utilization_percent, gpu.sm_clock_mhz
    if use is None:
        return SpeedState(UNKNOWN, "the driver does not report the load")
    if use < IDLE_PERCENT:
        return SpeedState(IDLE, f"{use:.0f} % load")
    over = _lasting_reasons(gpu, shares, thresholds)
    highest = gpu.sm_clock_max_mhz
    limit = None if highest is None else SLOW_SHARE * highest
    if gb10:
        limit = thresholds.slow_clock_mhz
    if limit is not None and was_slow:
        limit *= CLEARS_AT
    low = clock is not None and limit is not None and clock < limit
    if low and use >= LOADED_PERCENT:
        # Heat explains a low clock; a power-delivery fault may appear as any of the other reasons.
        if gb10 and not HEAT & over.keys():
            return _slow_gb10_state(gpu)
        if not over:
            return _slow_state(gpu)
    if over:
        return _throttled_state(gpu, over)
    return _state_by_clock(gpu, low=low, limit_mhz=limit)


def _state_by_clock(gpu: GpuReading, *, low: bool, limit_mhz: float | None) -> SpeedState:
    """Return the speed state of a GPU that is neither throttled nor slow under load: "normal" or "unknown".

    `low`: the clock is below its limit, but the load is too small to judge by. `limit_mhz` is None where the
    limit is unknown.
    """
    if gpu.sm_clock_mhz is None or limit_mhz is None:
        which = "clock" if gpu.sm_clock_mhz is None else "highest clock"
        return SpeedState(UNKNOWN, f"the driver does not report the {which}")
    if low:
        return SpeedState(UNKNOWN, f"too little load to judge by: {_clock_text(gpu)}")
    return SpeedState(NORMAL, f"{_clock_text(gpu)}; slow below {limit_mhz:.0f} MHz")


def _clock_text(gpu: GpuReading) -> str:
    """Return clock, load and power as text such as "2411 of 2800 MHz at 96 % load, 41 W"."""
    top = f" of {gpu.sm_clock_max_mhz}" if gpu.sm_clock_max_mhz is not None else ""
    watts = f", {gpu.power_w:.0f} W" if gpu.power_w is not None else ""
    return f"{gpu.sm_clock_mhz}{top} MHz at {gpu.utilization_percent:.0f} % load{watts}"


def _slow_gb10_state(gpu: GpuReading) -> SpeedState:
    """Return the state of a loaded GB10 at a low clock: by its power, a lock or a power fault."""
    words, clock = _clock_text(gpu), gpu.sm_clock_mhz
    if gpu.power_w is not None and gpu.power_w >= LOW_POWER_W:
        return SpeedState(SLOW_CLOCK, words, _LOCK_CAUSE, _LOCK_FIX)
    return SpeedState(
        SLOW_CLOCK,
        words,
        f"USB-PD power delivery: the clock is pinned at {clock} MHz under load",
        _USB_PD_FIX,
    )


def _slow_state(gpu: GpuReading) -> SpeedState:
    """Return the state of a loaded GPU other than a GB10 whose low clock no reason explains."""
    words, reasons = _clock_text(gpu), gpu.throttle_reasons
    if reasons is None:
        return SpeedState(UNKNOWN, f"{words}, and the driver gives no reasons")
    if "application clocks" in reasons:
        cause = "application clocks are set below what the GPU can do"
        return SpeedState(SLOW_CLOCK, words, cause, "nvidia-smi -rac resets them")
    return SpeedState(SLOW_CLOCK, words, _LOCK_CAUSE, _LOCK_FIX)


def _lasting_reasons(
    gpu: GpuReading, shares: Mapping[str, float], thresholds: NodeThresholds
) -> dict[str, float | None]:
    """Return {throttle reason: percent of the last minute} of the reasons that were active for too long.

    `shares` has these percentages. A reason that is active now but is not in `shares` is included with the
    value None. Reasons in `BY_CHOICE` are left out.
    """
    over: dict[str, float | None] = {
        reason: share
        for reason, share in shares.items()
        if share >= thresholds.throttled_warn_percent and reason not in BY_CHOICE
    }
    for reason in gpu.throttle_reasons or ():
        if reason not in shares and reason not in BY_CHOICE:
            over.setdefault(reason, None)
    return over


def _throttled_state(gpu: GpuReading, over: Mapping[str, float | None]) -> SpeedState:
    """Return the state of a throttled GPU, by the reason that held longest."""
    reason = max(over, key=lambda name: (over[name] or 0.0, name))
    share = over[reason]
    words = reason if share is None else f"{reason}, {share:.0f} % of the last minute"
    if gpu.sm_clock_mhz is not None:
        words += f"; {_clock_text(gpu)}"
    watts = "" if gpu.power_limit_w is None else f" of {gpu.power_limit_w:.0f} W"
    cause, fix = f"{reason}: the hardware holds the clock down", "check power supply, cable and cooling"
    if reason in HEAT:
        cause, fix = _heat_cause(gpu), "cooler air, free vents, or fewer requests at once"
    elif reason == POWER_CAP:
        cause = f"the GPU is at its power limit{watts}"
        fix = "none is needed at full load; a higher limit, where it allows one"
    return SpeedState(THROTTLED, words, cause, fix)


def _heat_cause(gpu: GpuReading) -> str:
    """Return as text why heat slows a GPU: it is at its thermal limit, or other parts may be hot."""
    margin = gpu.margin_c
    heat = "" if gpu.temperature_c is None else f", {gpu.temperature_c:.0f} °C"
    if margin is None:
        return f"the driver slows the GPU for heat{heat}"
    if margin <= AT_LIMIT_C:
        return f"the GPU is at its thermal limit{heat}"
    return (
        f"the driver slows the GPU for heat{heat}, now {margin:.0f} °C below its limit:"
        " it cooled down since, or memory or board are hot"
    )


# Computes how close a server comes to the limit that its memory bandwidth sets.
#
# Each generated token of a single request requires reading all active weights once. So the memory bandwidth
# divided by the bytes read per token is the highest token rate of a single request: 273 GB/s / 2.55 GB =
# 107 tokens/s for gpt-oss-120b on a GB10. A *lane* is an engine core (data-parallel rank) of a server.


GB10_BANDWIDTH_GB_PER_S = 273.0
"""Peak bandwidth of a GB10's LPDDR5X (data sheet); NVML cannot measure how much of it is used."""


def bandwidth_gb_per_s(nodes: Sequence[NodeSample | None]) -> float | None:
    """Return the memory bandwidth in GB/s of each GPU of a backend's nodes; None unless all are GB10s."""
    return GB10_BANDWIDTH_GB_PER_S if nodes and all(map(_has_gb10s, nodes)) else None


def _has_gb10s(node: NodeSample | None) -> bool:
    if node is None or not node.gpus:
        return False
    return all(is_gb10(gpu, unified=node.memory.unified) for gpu in node.gpus)


def read_percent(
    bandwidth: float | None, read_gb_per_s: float | None, nodes: int, lanes: int
) -> float | None:
    """Return memory reads as a percentage (0 to 100) of the memory bandwidth of GPUs; None if unknown.

    `read_gb_per_s` is the sum over all engine cores ("lanes") of the read rate of one GPU of each. The
    lanes are assumed to be distributed evenly over the nodes.
    """
    if bandwidth is None or read_gb_per_s is None:
        return None
    return 100.0 * read_gb_per_s / (bandwidth * max(1, min(nodes, lanes)))


# NVIDIA's Xids, the numbered faults of a GPU in the kernel's log: meaning and advice.


RESTART, RESET, REBOOT = "restart the program", "reset the GPU", "reboot the machine"
FOLLOWS, OWN = (
    "a follow-up: look at what came before it",
    "it has a procedure of its own: see NVIDIA's catalogue",
)
"""Advice of NVIDIA's catalogue of Xids."""
NOTE = "for your information"

_MEANINGS: dict[int, tuple[str, str]] = {
    8: ("GPU stopped processing", RESTART),
    13: ("graphics engine exception", RESTART),
    31: ("GPU memory page fault", RESTART),
    32: ("invalid push buffer", RESTART),
    43: ("GPU stopped processing", FOLLOWS),
    45: ("preemptive cleanup", FOLLOWS),
    46: ("GPU stopped processing", RESET),
    48: ("double-bit ECC error", OWN),
    62: ("internal micro-controller halt", RESET),
    63: ("row remapping recorded", NOTE),
    64: ("row remapping failed", RESET),
    69: ("graphics engine class error", RESTART),
    74: ("NVLink error", OWN),
    79: ("GPU fell off the bus", REBOOT),
    92: ("high single-bit ECC error rate", NOTE),
    94: ("contained memory error", RESTART),
    95: ("uncontained memory error", RESET),
    109: ("context switch timeout", RESET),
    110: ("security fault", RESET),
    119: ("GSP timeout", RESET),
    120: ("GSP error", RESET),
    121: ("C2C link corrected error", NOTE),
    136: ("link training failed", RESET),
    137: ("NVLink flow control error", NOTE),
    140: ("unrecovered ECC error", RESET),
    143: ("GPU initialisation failed", RESET),
    **dict.fromkeys(range(144, 151), ("NVLink error", OWN)),
    154: ("recovery action changed", FOLLOWS),
    155: ("NVLink fault", RESET),
    156: ("resource retirement", RESET),
    157: ("resource retirement failed", NOTE),
    158: ("fatal timeout", RESET),
    160: ("channel retirement", NOTE),
    161: ("channel retirement failed", NOTE),
    167: ("PCIe fatal timeout", ""),
    168: ("WPR fault", ""),
    171: ("detail of Xid 48", FOLLOWS),
    172: ("detail of Xid 48", FOLLOWS),
}
"""By number: (meaning, advice), "" where NVIDIA's catalogue has no advice."""


def xid_words(code: int | None) -> str:
    """Return number, meaning and advice: "Xid 79: GPU fell off the bus; reboot the machine"."""
    if code is None:
        return "Xid"
    meaning, advice = _MEANINGS.get(code, ("", ""))
    return f"Xid {code}" + (f": {meaning}" if meaning else "") + (f"; {advice}" if advice else "")


def is_severe(code: int | None) -> bool:
    """Return whether an Xid calls for a reset or a reboot."""
    return code is not None and _MEANINGS.get(code, ("", ""))[1] in {RESET, REBOOT, OWN}
