"""What holds a server back: the verdict that screens, reports and results of sweeps show in one line."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class LimitKind(StrEnum):
    """What a server would need more of to generate more tokens per second."""

    KV = "KV cache"
    SLOTS = "slots"
    BANDWIDTH = "memory bandwidth"
    PREFILL = "prefill compute"
    DECODE = "decode compute"
    CPU = "one CPU core"
    POWER = "power or clock"
    NETWORK = "network between ranks"
    ROUTER = "router"
    CLIENT = "client"
    CLIENT_OR_ROUTER = "client or router"
    """Too few requests arrive, and a router that does not count them may hold them back."""
    UNKNOWN = "unknown"


class Limit(Struct, frozen=True):
    """What holds a server back, with the figures that show it."""

    kind: LimitKind
    reason: str
    """The figure and its limit in words; of an unknown limit, what is missing to name it."""
    hint: str | None = None
    """What would help, only where a calculation supports it; else None."""
    value: float | None = None
    """The figure of `reason` as a number; None if there is none."""
    limit: float | None = None
    """The limit that `value` is compared with; None if there is none."""
    unit: str | None = None
    """Unit of `value` and `limit`: "%", "requests", "GB/s" or "MHz"."""
    window_s: float | None = None
    """Seconds that were judged, up to the newest poll."""

    @property
    def title(self) -> str:
        """The kind with the words before it: "limited by slots", or "limit unknown"."""
        return "limit unknown" if self.kind is LimitKind.UNKNOWN else f"limited by {self.kind.value}"

    @property
    def line(self) -> str:
        """The verdict in one line: "limited by slots, last 30 s: 16 of 16 run, 9 wait; …"."""
        return f"{self.title}{', ' if self.judged else ''}{self.judged}: {self.words}"

    @property
    def judged(self) -> str:
        """The seconds that were judged, "last 30 s"; "" if they are not known or the reason names them."""
        last = "" if self.window_s is None else f"last {self.window_s:.0f} s"
        return "" if last in self.reason else last

    @property
    def words(self) -> str:
        """The reason and the hint."""
        return self.reason if self.hint is None else f"{self.reason}; {self.hint}"

    def as_json(self) -> dict[str, object]:
        """Return the verdict as JSON values."""
        return {
            "kind": self.kind.value,
            "reason": self.reason,
            "hint": self.hint,
            "value": self.value,
            "limit": self.limit,
            "unit": self.unit,
            "window_s": self.window_s,
        }
