"""Whether a GPU runs as fast as it should under its load."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from sparktop.model.node import GpuReading
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
"""Throttle reasons that come from a setting: no throttling. A clock that is too low is still told
(`_slow_state`)."""
_GRAVITY = {word: rank for rank, word in enumerate((UNKNOWN, IDLE, NORMAL, THROTTLED, SLOW_CLOCK))}
"""Rank of the state of one GPU; SLOW_STEPS is added by `with_steps` later."""

_USB_PD_FIX = (
    "use the 240 W adapter that came with it, unplug it from the mains for a minute, plug its cable in again"
    " and check it; nvidia-smi -rgc lifts a clock lock"
)
_LOCK_CAUSE = "a clock lock (nvidia-smi -lgc) or a limit that the driver does not report"
_LOCK_FIX = "nvidia-smi -rgc lifts a clock lock; else check power supply and cooling"


class ClockPace(Struct, frozen=True):
    """The speed state of a GPU, and since when its readings have shown a slow clock under load."""

    state: SpeedState = SpeedState()
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
    pace: ClockPace,
    gpu: GpuReading,
    at: float,
    *,
    unified: bool | None,
    shares: Mapping[str, float],
    thresholds: NodeThresholds,
) -> ClockPace:
    """Return the speed state of a GPU at the time `at` (monotonic seconds); `pace` is its previous state.

    `shares` maps each throttle reason to the percentage of the last minute in which it was active.
    `unified` is True if the machine's memory is unified. A slow clock is reported as "unknown" until it
    has lasted `SLOW_AFTER_S`.
    """
    gb10, was_slow = is_gb10(gpu, unified=unified), pace.state.word == SLOW_CLOCK
    state = _state_of_reading(gpu, shares, thresholds, gb10=gb10, was_slow=was_slow)
    if state.word != SLOW_CLOCK:
        return ClockPace(state)
    since = at if pace.slow_since is None else pace.slow_since
    if at - since >= SLOW_AFTER_S:
        return ClockPace(state, since)
    return ClockPace(SpeedState(UNKNOWN, f"{state.reason}, for {at - since:.0f} s so far"), since)


def worst_state(paces: Mapping[int, ClockPace]) -> SpeedState:
    """Return the most severe speed state of the GPUs; with several GPUs its reason names the GPU's index."""
    if not paces:
        return SpeedState(UNKNOWN, "no GPU to look at")
    worst_index = max(sorted(paces), key=lambda index: _GRAVITY[paces[index].state.word])
    state = paces[worst_index].state
    if len(paces) == 1:
        return state
    return replace(state, reason=f"GPU {worst_index}: {state.reason}")


def with_steps(state: SpeedState, steps: Iterable[StepPace], *, gb10: bool) -> SpeedState:
    """Return the speed state "slow steps" if `state` is normal but one of `steps` is slow; else `state`.

    If several engines are slow, the reason names the engine whose step time grew most.
    """
    slow = [step for step in steps if step.slow]
    if state.word != NORMAL or not slow:
        return state
    slowest = max(slow, key=lambda step: step.now_ms / step.before_ms)
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
    load_percent, clock = gpu.utilization_percent, gpu.sm_clock_mhz
    if load_percent is None:
        return SpeedState(UNKNOWN, "the driver does not report the load")
    if load_percent < IDLE_PERCENT:
        return SpeedState(IDLE, f"{load_percent:.0f} % load")
    lasting = _lasting_reasons(gpu, shares, thresholds)
    highest = gpu.sm_clock_max_mhz
    limit = None if highest is None else SLOW_SHARE * highest
    if gb10:
        limit = thresholds.slow_clock_mhz
    if limit is not None and was_slow:
        limit *= CLEARS_AT
    is_clock_low = clock is not None and limit is not None and clock < limit
    if is_clock_low and load_percent >= LOADED_PERCENT:
        # On a GB10 a fault unless heat explains it: a power-delivery fault may appear as any other reason.
        # Elsewhere a fault only without any reason.
        if gb10 and not HEAT & lasting.keys():
            return _slow_gb10_state(gpu)
        if not lasting:
            return _slow_state(gpu)
    if lasting:
        return _throttled_state(gpu, lasting)
    return _state_by_clock(gpu, low=is_clock_low, limit_mhz=limit)


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
    lasting: dict[str, float | None] = {
        reason: share
        for reason, share in shares.items()
        if share >= thresholds.throttled_warn_percent and reason not in BY_CHOICE
    }
    for reason in gpu.throttle_reasons or ():
        if reason not in shares and reason not in BY_CHOICE:
            lasting.setdefault(reason, None)
    return lasting


def _throttled_state(gpu: GpuReading, lasting: Mapping[str, float | None]) -> SpeedState:
    """Return the state of a throttled GPU, by the reason that held longest."""
    reason = max(lasting, key=lambda name: (lasting[name] or 0.0, name))
    share = lasting[reason]
    words = reason if share is None else f"{reason}, {share:.0f} % of the last minute"
    if gpu.sm_clock_mhz is not None:
        words += f"; {_clock_text(gpu)}"
    cause, fix = f"{reason}: the hardware holds the clock down", "check power supply, cable and cooling"
    if reason in HEAT:
        cause, fix = _heat_cause(gpu), "cooler air, free vents, or fewer requests at once"
    elif reason == POWER_CAP:
        limit_words = "" if gpu.power_limit_w is None else f" of {gpu.power_limit_w:.0f} W"
        cause = f"the GPU is at its power limit{limit_words}"
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
