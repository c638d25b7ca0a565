"""NVIDIA's Xids, the numbered faults of a GPU in the kernel's log: meaning and advice."""

from __future__ import annotations

from enum import StrEnum


class Advice(StrEnum):
    """Advice of NVIDIA's catalogue of Xids."""

    RESTART = "restart the program"
    RESET = "reset the GPU"
    REBOOT = "reboot the machine"
    FOLLOW_UP = "a follow-up: look at what came before it"
    PROCEDURE = "it has a procedure of its own: see NVIDIA's catalogue"
    INFORMATION = "for your information"


_MEANINGS: dict[int, tuple[str, Advice | None]] = {
    8: ("GPU stopped processing", Advice.RESTART),
    13: ("graphics engine exception", Advice.RESTART),
    31: ("GPU memory page fault", Advice.RESTART),
    32: ("invalid push buffer", Advice.RESTART),
    43: ("GPU stopped processing", Advice.FOLLOW_UP),
    45: ("preemptive cleanup", Advice.FOLLOW_UP),
    46: ("GPU stopped processing", Advice.RESET),
    48: ("double-bit ECC error", Advice.PROCEDURE),
    62: ("internal micro-controller halt", Advice.RESET),
    63: ("row remapping recorded", Advice.INFORMATION),
    64: ("row remapping failed", Advice.RESET),
    69: ("graphics engine class error", Advice.RESTART),
    74: ("NVLink error", Advice.PROCEDURE),
    79: ("GPU fell off the bus", Advice.REBOOT),
    92: ("high single-bit ECC error rate", Advice.INFORMATION),
    94: ("contained memory error", Advice.RESTART),
    95: ("uncontained memory error", Advice.RESET),
    109: ("context switch timeout", Advice.RESET),
    110: ("security fault", Advice.RESET),
    119: ("GSP timeout", Advice.RESET),
    120: ("GSP error", Advice.RESET),
    121: ("C2C link corrected error", Advice.INFORMATION),
    136: ("link training failed", Advice.RESET),
    137: ("NVLink flow control error", Advice.INFORMATION),
    140: ("unrecovered ECC error", Advice.RESET),
    143: ("GPU initialisation failed", Advice.RESET),
    **dict.fromkeys(range(144, 151), ("NVLink error", Advice.PROCEDURE)),
    154: ("recovery action changed", Advice.FOLLOW_UP),
    155: ("NVLink fault", Advice.RESET),
    156: ("resource retirement", Advice.RESET),
    157: ("resource retirement failed", Advice.INFORMATION),
    158: ("fatal timeout", Advice.RESET),
    160: ("channel retirement", Advice.INFORMATION),
    161: ("channel retirement failed", Advice.INFORMATION),
    167: ("PCIe fatal timeout", None),
    168: ("WPR fault", None),
    171: ("detail of Xid 48", Advice.FOLLOW_UP),
    172: ("detail of Xid 48", Advice.FOLLOW_UP),
}
"""By number: (meaning, advice), None where NVIDIA's catalogue has no advice."""


def xid_words(code: int | None) -> str:
    """Return number, meaning and advice: "Xid 79: GPU fell off the bus; reboot the machine"."""
    if code is None:
        return "Xid"
    meaning, advice = _MEANINGS.get(code, ("", None))
    return f"Xid {code}" + (f": {meaning}" if meaning else "") + (f"; {advice}" if advice else "")


def is_severe(code: int | None) -> bool:
    """Return whether an Xid calls for a reset, a reboot or a procedure of its own."""
    _, advice = _MEANINGS.get(code or 0, ("", None))
    return advice in {Advice.RESET, Advice.REBOOT, Advice.PROCEDURE}
