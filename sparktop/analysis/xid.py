"""NVIDIA's Xids, the numbered faults of a GPU in the kernel's log: meaning and advice."""

from __future__ import annotations

RESTART, RESET, REBOOT = "restart the program", "reset the GPU", "reboot the machine"
FOLLOWS, OWN = (
    "a follow-up: look at what came before it",
    "it has a procedure of its own: see NVIDIA's catalogue",
)
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
