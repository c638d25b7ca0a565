"""Checks files that list servers: target files, and those of sparkrun."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from msgspec import Struct, field

from sparktop.doctor.check import Check, Status
from sparktop.model.targets import BackendTarget, NodeTarget, Watch
from sparktop.watch.sparkrun import listed
from sparktop.watch.target_files import settled_targets

MOST = 32
"""Most listed servers that are checked one by one."""


class ListedTargets(Struct, frozen=True):
    """What the files list, and a check for each source of them and each file that cannot be used."""

    checks: list[Check] = field(default_factory=list)
    backends: list[BackendTarget] = field(default_factory=list)
    nodes: list[NodeTarget] = field(default_factory=list)


async def read_listed(
    watch: Watch,
    home: Path | None = None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> ListedTargets:
    """Read the files that `watch` names; `home` is the home directory, for sparkrun's."""
    read = ListedTargets()
    if watch.target_files:
        backends, problems = await settled_targets(watch.target_files, sleep)
        _note(read, "target files", backends, problems)
    if watch.sparkrun:
        found = await asyncio.to_thread(listed, home or Path.home())
        _note(read, "sparkrun", found.backends, found.problems)
        read.nodes.extend(found.nodes[host] for host in found.default if host in found.nodes)
    return read


def _note(read: ListedTargets, name: str, backends: Sequence[BackendTarget], problems: Sequence[str]) -> None:
    """Add what one source lists, with a check of it and one for each problem."""
    more = f"; the first {MOST} are checked" if len(backends) > MOST else " listed"
    count = f"{len(backends)} server{'' if len(backends) == 1 else 's'}{more}"
    read.checks.append(Check(name, Status.OK if backends else Status.WARN, count))
    read.checks.extend(Check(name, Status.WARN, problem) for problem in problems)
    read.backends.extend(backends[:MOST])


def softened(checks: Sequence[Check]) -> list[Check]:
    """Return checks of a listed server, with warnings for failures: files keep servers that have ended.

    Ray lists exporters of its own, too: what answers with something else than an LLM server's page is named,
    without advice.
    """
    return [_softened(one) if one.status is Status.FAIL else one for one in checks]


def _softened(check: Check) -> Check:
    if check.message.endswith((": no engine figures", ", not metrics")):
        return Check(check.name, Status.SKIP, "answers, but not as an LLM server: not watched")
    return Check(check.name, Status.WARN, check.message, "listed in a file; it is watched once it answers")
