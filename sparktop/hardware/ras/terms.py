"""What both formats of an answer of NCCL's RAS thread share: limits, hashes, addresses and process ids."""

from __future__ import annotations

import re

MOST_COMMUNICATORS, MOST_RANKS = 1024, 4096
"""Most communicators of an answer, and most ranks of each, that are kept."""


class RanksError(ValueError):
    """An answer that is not one of NCCL's RAS thread; the message is one clean line."""


def plain_hash(text: str) -> str:
    """Return a hash as 16 digits in lower case without 0x, as NCCL's text has it; "" for no hash."""
    digits = text.strip().lower().removeprefix("0x")
    return digits.rjust(16, "0") if re.fullmatch(r"[0-9a-f]{1,16}", digits) else ""


def known_host(host: str | None) -> str | None:
    """Return an address without brackets; None where NCCL writes that it does not know the host."""
    return None if host in {None, "", "unknown"} else str(host).strip("[]")


def known_pid(pid: int | None) -> int | None:
    """Return a process id; None where NCCL writes that it does not know it (-1)."""
    return pid if pid is not None and pid >= 0 else None
