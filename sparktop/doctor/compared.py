"""Compares machines that should be alike: those that run the same engine, and those of the same product."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from sparktop.analysis.machines_compared import (
    Group,
    MachinesCompared,
    alike_in,
    groups_of,
    process_of,
)
from sparktop.analysis.placement import engine_processes, place
from sparktop.analysis.situation import Situation
from sparktop.doctor.check import Check, Status
from sparktop.model.finding import Sure
from sparktop.model.node import NodeIdentity, NodeSample
from sparktop.model.snapshot import BackendView, NodeView
from sparktop.model.targets import BackendTarget, NodeTarget
from sparktop.sources.source import Reading

_NAME = "machines compared"
_LATER_S = 15.0
"""The rule reports some differences, as of clocks, only if they last some seconds. The doctor reads once, so
it shows the rule the same readings again as if this much later."""


def check_compared(
    machines: Sequence[tuple[NodeTarget, Reading, NodeIdentity]], backends: Sequence[BackendTarget]
) -> list[Check]:
    """Return a check for each difference between machines, else one that says in what they are alike.

    `machines` are targets with what was read there; fewer than two that could be read are not compared.
    """
    read = [
        (target, sample, identity)
        for target, sample, identity in machines
        if isinstance(sample, NodeSample) and identity.setup is not None
    ]
    if len(read) < 2:  # noqa: PLR2004 - one has nothing to compare with
        return []
    now = _situation(read, backends)
    rule = MachinesCompared()
    rule.look(now)  # it remembers since when there is a difference
    found = rule.look(Situation(_LATER_S, now.wall, now.backends, now.nodes))
    checks = [
        Check(
            f"{_NAME} {one.subject}",
            Status.WARN if one.severity is not None else Status.SKIP,
            one.line if one.sure is Sure.KNOWN else f"{one.line} ({one.sure.value})",
            one.fix or "",
        )
        for one in found
    ]
    groups = [group for group in groups_of(now) if len(group.machines) > 1]
    alike = [] if checks else [_alike(group) for group in groups]
    return [*checks, *alike, *(one for group in groups for one in _unread(group))]


def _situation(
    read: Sequence[tuple[NodeTarget, NodeSample, NodeIdentity]], backends: Sequence[BackendTarget]
) -> Situation:
    """Return what the rule judges: a view of each machine, and the servers placed on them.

    A server of the engine "auto" is taken to be of the only engine that is seen, if there is only one.
    """
    nodes: dict[str, NodeView] = {}
    for target, sample, identity in read:
        processes = engine_processes(sample.gpus)
        nodes[target.name] = NodeView(
            target.name, target.via, sample, identity, age_s=0.0, engine_processes=processes
        )
    engines = {process.engine for view in nodes.values() for process in view.engine_processes}
    only = next(iter(engines)) if len(engines) == 1 else None
    known = [(one, only if one.engine == "auto" else one.engine) for one in backends]
    where = place(
        known, [(target, identity, nodes[target.name].engine_processes) for target, _, identity in read]
    )
    views = {one.name: BackendView(one.name, one.url, one.name, nodes=where[one.name]) for one in backends}
    return Situation(0.0, datetime.now(UTC), views, nodes)


def _alike(group: Group) -> Check:
    who = f"{group.engine}: {', '.join(group.names)}" if group.engine is not None else ", ".join(group.names)
    same = ", ".join(alike_in(group))
    if not same:
        return Check(_NAME, Status.SKIP, f"{who}: nothing to compare could be read")
    return Check(_NAME, Status.OK, f"{who} have the same {same}")


def _unread(group: Group) -> list[Check]:
    """Return a check that names the machines whose engine may not be looked into."""
    if group.engine is None:
        return []
    processes = {view.name: process_of(view, group.engine) for view in group.machines}
    closed = [name for name, one in processes.items() if one is not None and one.variables is None]
    if not closed:
        return []
    seen = f"NCCL and its variables are not readable on {', '.join(closed)}: the engine is another user's"
    return [Check(_NAME, Status.SKIP, seen, "run the reader there as that user, or as root")]
