"""Machines compared on the full screen: what differs, in what they are alike, and what is not known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sparktop.analysis.machines_compared import (
    DIFFER,
    NIC_FIRMWARE,
    READS,
    SETUP,
    Group,
    alike_in,
    groups_of,
    process_of,
)
from sparktop.model.event import Finding
from sparktop.model.snapshot import BackendView, NodeView, Situation, Snapshot
from sparktop.panels.parts.figures import Section, findings_section, flowed, label, stack, wrapped
from sparktop.panels.parts.text import Row, fit_row, frame_role, framed, name_tab

_KINDS = frozenset({DIFFER, SETUP, "slow-link"})
"""Kinds of findings that come from comparing machines."""


def machines_screen(snapshot: Snapshot, width: int, height: int, *, selected: bool = False) -> list[Row]:
    """Draw the groups of machines that are compared, in at least `height` rows."""
    inner = width - 4
    sections = list(_group_sections(snapshot, inner))
    unknown = [view.name for view in snapshot.nodes if view.identity.setup is None]
    if unknown:
        said = f"{', '.join(unknown)}: set-up unknown (an older agent, or read through a Prometheus)"
        sections.append(Section("not compared", _lines(said, inner)))
    if not sections:
        said = "one machine alone has nothing to be compared with"
        sections.append(Section("not compared", _lines(said, inner)))
    rows = [[label(" "), *row] for row in stack(sections, inner, height - 2)]
    return framed(
        rows,
        width,
        max(height, len(rows) + 2),
        role=frame_role("node", selected=selected),
        title=name_tab("machines", "", "machines compared"),
    )


def _group_sections(snapshot: Snapshot, width: int) -> Iterator[Section]:
    """Yield a section for each group of two machines or more; a finding stands in the first that it fits."""
    backends = {one.name: one for one in snapshot.backends}
    nodes = {one.name: one for one in snapshot.nodes}
    now = Situation(snapshot.at, snapshot.taken_at, backends, nodes, snapshot.routers)
    named: set[tuple[str, str, str]] = set()
    for group in groups_of(now):
        if len(group.machines) < 2:
            continue
        engine = backends.get(group.engine or "")
        views: list[BackendView | NodeView] = [*([] if engine is None else [engine]), *group.machines]
        found = [one for view in views for one in view.findings if one.kind in _KINDS]
        found = [one for one in found if (one.subject, one.kind, one.key) not in named]
        named |= {(one.subject, one.kind, one.key) for one in found}
        yield Section(_title(group), list(_group_rows(group, found, width)), _count(group, found))


def _title(group: Group) -> str:
    machines = ", ".join(group.names)
    return machines if group.engine is None else f"{group.engine}: {machines}"


def _count(group: Group, found: Sequence[Finding]) -> str:
    machines = f"{len(group.machines)} machines: "
    alike, apart = len(alike_in(group)), sum(one.kind == DIFFER for one in found)
    wrong = len(found) - apart
    parts = [f"{apart} setting{' differs' if apart == 1 else 's differ'}"] if apart else []
    parts += [f"{wrong} to mend"] if wrong else []
    parts.append(f"{alike} alike" if apart else f"{alike} setting{'' if alike == 1 else 's'} alike")
    return machines + ", ".join(parts)


def _group_rows(group: Group, found: Sequence[Finding], width: int) -> Iterator[Row]:
    for section in findings_section(found, width):
        yield from section.rows
    columns = (("alike", "text", alike_in(group)), ("not known", "muted", list(_unread(group))))
    for name, role, pieces in columns:
        for index, row in enumerate(flowed([[(piece, role)] for piece in pieces], width - 12)):
            yield [label("" if index else f"  {name}", 12), *row]


def _unread(group: Group) -> Iterator[str]:
    """Yield each setting that could not be read of some machines, with their names."""
    for title, names in _machines_by_unread(group).items():
        yield f"{title} of {', '.join(names)}" if len(names) < len(group.machines) else title


def _machines_by_unread(group: Group) -> dict[str, list[str]]:
    unread: dict[str, list[str]] = {}
    for view in group.machines:
        for title, is_known in _readings(view, group.engine):
            if not is_known:
                unread.setdefault(title, []).append(view.name)
    return unread


def _readings(view: NodeView, engine: str | None) -> Iterator[tuple[str, bool]]:
    """Yield each setting that is compared, by title, and whether it could be read of a machine."""
    if view.identity.setup is None:
        return
    for read in READS:
        if not read.of_links and (view.identity.setup.rails or read.fact.key != NIC_FIRMWARE):
            yield read.fact.title, read.value(view) is not None
    yield "clock", view.via == "local" or (view.sample is not None and view.sample.clock is not None)
    if engine is not None:
        process = process_of(view, engine)
        yield "process of the engine", process is not None
        if process is not None:
            yield "NCCL", process.nccl is not None
            yield "variables of NCCL (the engine is another user's)", process.variables is not None


def _lines(text: str, width: int) -> list[Row]:
    return [fit_row([(line, "muted")], width) for line in wrapped(text, width)]
