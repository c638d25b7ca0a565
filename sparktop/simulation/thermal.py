"""Temperature of a simulated GB10: power heats the machine, and heat slows its clock.

The temperature settles at `AMBIENT_C + power x RISE_C_PER_W`. It approaches this value exponentially, so it
can be computed directly for any time between two changes of power. The extremes are those observed of DGX
Sparks: 3 to 5 W and 208 MHz with no model loaded, 11 to 14 W with a model loaded, 30 to 45 W in decode, 75 W
and more under heavy load, 84 to 90 °C under lasting load at 64 streams, and a clock near 2,400 MHz under
load. After a USB-PD fault, the clock was 500 to 850 MHz at 15 to 18 W, with no throttle reason reported. The
curves in between are assumed.
"""

from __future__ import annotations

import math

REFERENCE_CLOCK_MHZ = 2405.0
"""The SM clock under load of a machine that is not hot, at which step times are stated."""
IDLE_CLOCK_MHZ = 208.0
LOADED_W = 11.0
"""Power in watts with a model in memory but no load."""
BARE_W = 4.0
"""Power in watts without a model in memory."""
WAITING_W = 20.0
"""Power in watts while a rank waits for the network: its GPU spins (13 to 24 W observed)."""
AMBIENT_C = 27.0
RISE_C_PER_W = 0.83
"""75 W settle at 89 C, the mix of a lasting c = 64 (69 W) at 84 C."""
TIME_CONSTANT_S = 75.0
SAG_FROM_C = 80.0
SAG_PER_C = 0.006
"""Share of the clock lost per degree above `SAG_FROM_C`: 3 % at 85 C."""
THROTTLED_PER_C = 0.05
"""Share of the time in software thermal slowdown, per degree above `SAG_FROM_C`."""
PINNED_W = 16.5
"""Most power in watts of a machine with a pinned clock (15 to 18 W observed)."""
_ONE_ROW_W = 30.0
_ALL_ROWS_W = 75.0
_ROWS_SCALE = 28.0
"""Watts of a step with one sequence and with very many, and the sequences by which the gap falls to 1/e."""


def step_power_w(rows: int) -> float:
    """Return the power in watts of a node in a step of `rows` tokens: 31 W for 1 token, 61 W for 32.

    For the many tokens of a prefill step, the power approaches 75 W.
    """
    return _ALL_ROWS_W - (_ALL_ROWS_W - _ONE_ROW_W) * math.exp(-rows / _ROWS_SCALE)


class NodeThermal:
    """The power, temperature and clock of a simulated machine, at any time since the last change of power.

    It also counts the seconds spent in engine steps; a step in progress is counted up to the time for which
    the seconds are requested.
    """

    def __init__(self, *, ambient_c: float = AMBIENT_C, idle_w: float = LOADED_W, at: float = 0.0) -> None:
        """Start idle at the time `at`, at the temperature that settles when the power is `idle_w` watts."""
        self.ambient_c = ambient_c
        self.idle_w = idle_w
        self.pinned_mhz: float | None = None
        """Highest clock in MHz during a simulated power-delivery fault; None without a fault."""
        self._at = at
        self._power_w = idle_w
        self._temperature_c = ambient_c + idle_w * RISE_C_PER_W
        self._energy_j = 0.0
        self._throttled_s = 0.0
        self._busy_s = self._host_s = 0.0
        self._busy_since_s: float | None = None
        self._gpu_share = 1.0

    def draw(self, at: float, power_w: float | None, gpu_share: float = 1.0) -> None:
        """Set the power to `power_w` watts from the time `at` on; None means idle.

        In a step, the GPU computes for the share `gpu_share` of the time, and waits for the CPU in the rest.
        If `at` is before the previous change of power, the time of that change is used for the temperature.
        """
        self._settle(at)
        self._busy_s, self._host_s = self.busy_s(at), self.host_s(at)
        self._busy_since_s = None if power_w is None else at
        self._gpu_share = gpu_share
        wanted_w = self.idle_w if power_w is None else power_w - (1.0 - gpu_share) * (power_w - self.idle_w)
        self._power_w = wanted_w if self.pinned_mhz is None else min(wanted_w, max(PINNED_W, self.idle_w))

    def power_w(self) -> float:
        """Return the power in watts, which is constant from one change (`draw`) to the next."""
        return self._power_w

    def temperature_c(self, at: float) -> float:
        """Return the temperature in °C at the time `at`, which must not be before the last `draw`."""
        target_c = self.ambient_c + self._power_w * RISE_C_PER_W
        fade = math.exp(-max(0.0, at - self._at) / TIME_CONSTANT_S)
        return target_c + (self._temperature_c - target_c) * fade

    def clock_mhz(self, at: float) -> float:
        """Return the SM clock in MHz at the time `at`.

        An idle machine has a low clock. Under load, the clock falls as the temperature rises. A simulated
        fault (`pinned_mhz`) limits the clock under load further.
        """
        return IDLE_CLOCK_MHZ if self._busy_since_s is None else self.load_clock_mhz(at)

    def load_clock_mhz(self, at: float) -> float:
        """Return the SM clock in MHz that a step starting at the time `at` would have."""
        over_c = max(0.0, self.temperature_c(at) - SAG_FROM_C)
        clock_mhz = REFERENCE_CLOCK_MHZ * (1.0 - SAG_PER_C * over_c)
        return clock_mhz if self.pinned_mhz is None else min(clock_mhz, self.pinned_mhz)

    def throttled_share(self, at: float) -> float:
        """Return the fraction of time, 0 to 1, for which the GPU is throttled, given its temperature at `at`.

        It is 0 for an idle machine, and where a simulated fault (`pinned_mhz`) limits the clock.
        """
        if self._busy_since_s is None or self.pinned_mhz is not None:
            return 0.0
        return min(1.0, THROTTLED_PER_C * max(0.0, self.temperature_c(at) - SAG_FROM_C))

    def throttled_s(self, at: float) -> float:
        """Return the seconds, from the start to the time `at`, in which heat slowed the clock.

        The driver of a real GPU has the same counter.
        """
        # The share is interpolated linearly: intervals are seconds, the time constant is 75 s.
        share = (self.throttled_share(self._at) + self.throttled_share(at)) / 2
        return self._throttled_s + share * max(0.0, at - self._at)

    def energy_j(self, at: float) -> float:
        """Return the energy in joules that the machine has used from the start to the time `at`."""
        return self._energy_j + self._power_w * max(0.0, at - self._at)

    def busy_s(self, at: float) -> float:
        """Return the seconds in which the GPU computed from the start to the time `at`.

        `at` must not be before the last call of `draw`.
        """
        return self._busy_s + self._gpu_share * self._in_step_s(at)

    def host_s(self, at: float) -> float:
        """Return the seconds in which steps waited for the CPU from the start to the time `at`."""
        return self._host_s + (1.0 - self._gpu_share) * self._in_step_s(at)

    def _in_step_s(self, at: float) -> float:
        return 0.0 if self._busy_since_s is None else max(0.0, at - self._busy_since_s)

    def _settle(self, at: float) -> None:
        """Move temperature, energy and throttled seconds to the time `at`, before the power changes."""
        if at <= self._at:
            return
        self._throttled_s = self.throttled_s(at)
        self._energy_j = self.energy_j(at)
        self._temperature_c = self.temperature_c(at)
        self._at = at
