"""Checks this process's limit of open files, which limits the number of connections in a sweep."""

from __future__ import annotations

import resource

from sparktop.doctor.check import Check, Status

RESERVED_FILES = 64
"""Open files that are not available for a sweep's requests: sources, logs, results, libraries."""
USUAL_CONCURRENCY = 256
"""Concurrency that the limit should allow even if the configured sweeps need less."""


def open_file_limits() -> tuple[int | None, int | None]:
    """Return (soft limit, hard limit) of open files of this process; None for unlimited."""
    soft, hard = map(_bounded, resource.getrlimit(resource.RLIMIT_NOFILE))
    return soft, hard


def _bounded(limit: int) -> int | None:
    return None if limit == resource.RLIM_INFINITY else limit


def check_open_files(soft: int | None, hard: int | None, wanted: int = 0) -> Check:
    """Return the check whether the limit of open files allows the concurrency that sweeps need.

    `wanted` is the largest concurrency of the configured sweeps. `soft` and `hard` are the limits, None for
    no limit.
    """
    name = "open files"
    if soft is None:
        return Check(name, Status.OK, "no limit: a sweep reaches any concurrency")
    reach = max(0, soft - RESERVED_FILES)
    seen = f"{soft} at once: a sweep reaches c = {reach}"
    needed = max(wanted, USUAL_CONCURRENCY)
    if reach >= needed:
        return Check(name, Status.OK, seen)
    goal = needed + RESERVED_FILES
    if hard is None or hard >= goal:
        return Check(name, Status.WARN, seen, f"for c = {needed}: ulimit -n {goal}")
    where = "nofile in limits.conf, LimitNOFILE of a unit"
    advice = f"for c = {needed} raise the hard limit ({hard}) to {goal}: {where}"
    return Check(name, Status.WARN, seen, advice)
