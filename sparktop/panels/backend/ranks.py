"""Draws what NCCL answered about the ranks of a backend: the verdict, and the counts of each rank."""

from __future__ import annotations

from collections.abc import Mapping

from sparktop.graphics import numbers
from sparktop.graphics.cells import fit
from sparktop.model.node import NodeSample
from sparktop.model.ranks import (
    APART,
    Communicator,
    MissingRank,
    Rank,
    RankStatus,
    RanksVerdict,
    RanksView,
    RanksWord,
)
from sparktop.model.snapshot import BackendView, NodeView
from sparktop.panels.parts.figures import figure, label
from sparktop.panels.parts.rows import Row, Run
from sparktop.panels.parts.sections import Section
from sparktop.panels.parts.sentences import wrapped

_MOST_ROWS = 16
"""Most ranks that have a row of their own."""
_SEVERAL = 2
_ROLES = {RanksWord.DIVERGED: "bad", RanksWord.MISSING: "bad", RanksWord.FAILED: "warn"}
_WIDTHS = {"rank": 4, "count": 10, "clock": 5, "power": 4, "rdma": 8, "worker": 6}
"""Cells of the columns of the table, apart from the machine's name."""
_TITLES = {"clock": "MHz", "power": "W", "rdma": "RDMA", "worker": "CPU"}
"""Columns about the machine of a rank."""
_LEAST_NAME, _MOST_NAME = 8, 16
_HEAD_HINT = "N asks NCCL which rank lags or is missing"


def ranks_lead(view: BackendView, width: int) -> list[Row]:
    """Return the verdict and what to do in rows of `width` cells if ranks lag or are missing; else no row."""
    note = ranks_note(view)
    if note is None or view.ranks is None:
        return []
    hint = view.ranks.verdict.hint
    return [[(line, "bad")] for line in wrapped(f"{note}: {hint}" if hint else note, width)]


def ranks_section(view: BackendView, nodes: Mapping[str, NodeView], width: int) -> list[Section]:
    """Return a list with the section about a backend's ranks, `width` cells wide.

    Its table has a row for each rank: how many operations it launched, and what its machine does. The list is
    empty for a backend on one machine about which NCCL was never asked.
    """
    found = view.ranks
    if found is None:
        if len(view.nodes) < _SEVERAL:
            return []
        return [Section("ranks", [*_machines(view, nodes, width), [label(_HEAD_HINT)]])]
    verdict = found.verdict
    apart = verdict.apart is not None  # the rows above everything say it
    sentence, hint = ("", None) if apart else (verdict.sentence, verdict.hint)
    rows: list[Row] = [[(line, ranks_role(verdict))] for line in wrapped(sentence, width)]
    for words in (hint, found.warning):
        rows += [[label(line)] for line in wrapped(words, width)] if words else []
    table = _table(view, found, nodes, width)
    if not _are_known(view, found):
        table += _machines(view, nodes, width)
    return [Section("ranks", [*rows, *table], _when(found))]


def _are_known(view: BackendView, found: RanksView) -> bool:
    """Return whether the addresses of ranks in NCCL's answer are those of the backend's machines."""
    comm = _busiest(found)
    ranks: list[Rank | MissingRank] = [] if comm is None else [*comm.ranks, *comm.missing]
    return any(found.place(rank.host) in view.nodes for rank in ranks)


def ranks_role(verdict: RanksVerdict) -> str:
    """Return the colour role of a verdict."""
    return _ROLES.get(verdict.word, "text")


def ranks_note(view: BackendView) -> str | None:
    """Return the verdict in one line for a backend's frame; None unless ranks lag or are missing."""
    found = view.ranks
    return None if found is None or found.verdict.word not in APART else found.verdict.sentence


def _when(found: RanksView) -> str:
    if found.asking:
        return f"asking {found.node} …"
    verdict = found.verdict
    rests = f"{verdict.answers} answer{'' if verdict.answers == 1 else 's'}"
    span = f" over {verdict.span_s:.0f} s" if verdict.answers > 1 else ""
    return f"{rests}{span}, {numbers.age(found.age_s)} ago"


def _head(count: str, width: int) -> Row:
    name = f"{'rank':<{_WIDTHS['rank']}} {'machine':<{_name_cells(width)}}"
    return [label(name + count.rjust(_WIDTHS["count"]))] + [
        label(title.rjust(_WIDTHS[column])) for column, title in _TITLES.items()
    ]


def _name_cells(width: int) -> int:
    return max(_LEAST_NAME, min(_MOST_NAME, width - 1 - sum(_WIDTHS.values())))


def _machines(view: BackendView, nodes: Mapping[str, NodeView], width: int) -> list[Row]:
    """Return the table of a backend's machines while the counts of the ranks are unknown."""
    rows = [_row("–", name, _muted("–"), _machine(view, nodes.get(name), None), width) for name in view.nodes]
    return [_head("launched", width), *rows] if len(rows) >= _SEVERAL else []


def _table(view: BackendView, found: RanksView, nodes: Mapping[str, NodeView], width: int) -> list[Row]:
    """Return the table of the ranks of the communicator that counts most; [] if no answer names one."""
    comm = _busiest(found)
    if comm is None:
        return []
    name = _operation(comm)
    most = max((rank.counts.get(name, 0) for rank in comm.ranks), default=0)
    rows = [_head(name, width)]
    shown: list[Rank | MissingRank] = [*comm.ranks[:_MOST_ROWS], *comm.missing[:_MOST_ROWS]]
    for rank in shown:
        where = "not named" if rank.rank is None else found.place(rank.host)
        who = f"{rank.many}×" if isinstance(rank, Rank) and rank.rank is None else str(rank.rank)
        machine = _machine(view, nodes.get(where), rank.device)
        rows.append(_row(who, where, _count(rank, name, most), machine, width))
    hidden = max(0, len(comm.ranks) - _MOST_ROWS) + max(0, len(comm.missing) - _MOST_ROWS)
    return [*rows, [label(f"and {hidden} more ranks")]] if hidden else rows


def _row(who: str, where: str, count: Run, machine: Row, width: int) -> Row:
    return [label(who, _WIDTHS["rank"] + 1), (fit(where, _name_cells(width)), "text"), count, *machine]


def _count(rank: Rank | MissingRank, name: str, most: int) -> Run:
    """Return the cell with the count of a rank, or why there is none."""
    if isinstance(rank, MissingRank):
        return ("dead" if rank.dead else "no answer").rjust(_WIDTHS["count"]), "bad"
    count = rank.counts.get(name)
    if rank.status is not RankStatus.RUNNING:
        return rank.status.value[: _WIDTHS["count"] - 1].rjust(_WIDTHS["count"]), "warn"
    if count is None:
        return _muted("–")
    return f"{count:,}".rjust(_WIDTHS["count"]), "warn" if count < most else "text"


def _muted(text: str) -> Run:
    return text.rjust(_WIDTHS["count"]), "muted"


def _machine(view: BackendView, node: NodeView | None, device: int | None) -> Row:
    """Return the cells with clock, power, RDMA traffic, and CPU use of the engine's process on a machine."""
    sample = None if node is None else node.sample
    if node is None or sample is None:
        return [label("".join("–".rjust(_WIDTHS[name]) for name in _TITLES))]
    gpus = [gpu for gpu in sample.gpus if gpu.index == device] or list(sample.gpus)
    clocks = [gpu.sm_clock_mhz for gpu in gpus if gpu.sm_clock_mhz is not None]
    powers = [gpu.power_w for gpu in gpus if gpu.power_w is not None]
    clock, power = min(clocks, default=None), sum(powers) if powers else None
    rdma = _rdma(sample)
    cells = {
        "clock": "–" if clock is None else f"{clock}",
        "power": numbers.count(power, 3).strip(),
        "rdma": numbers.data_rate(rdma, _WIDTHS["rdma"] - 1).strip(),
        "worker": numbers.percent(_worker_percent(view, node), _WIDTHS["worker"] - 1).strip(),
    }
    return [figure(text.rjust(_WIDTHS[name]), known=text != numbers.UNKNOWN) for name, text in cells.items()]


def _rdma(sample: NodeSample) -> float | None:
    """Return the traffic of a machine's RDMA ports, in and out, in bytes per second; None if unknown."""
    ports = [port for port in sample.network if port.kind == "rdma" and port.up is not False]
    rates = [
        rate for port in ports for rate in (port.rx_bytes_per_s, port.tx_bytes_per_s) if rate is not None
    ]
    return sum(rates) if rates else None


def _worker_percent(view: BackendView, node: NodeView) -> float | None:
    """Return the CPU use of the backend's processes on a node, in percent of a core; None if unknown."""
    ours = {one.pid for one in node.engine_processes if one.backend in {view.name, None}}
    table = node.sample.processes if node.sample is not None else None
    used = [one.cpu_percent for one in (table.processes if table else ()) if one.pid in ours]
    known = [percent for percent in used if percent is not None]
    return sum(known) if known else None


def _busiest(found: RanksView) -> Communicator | None:
    """Return the communicator whose ranks have launched most operations; None without an answer."""
    comms = [] if found.answer is None else [one for one in found.answer.communicators if one.size > 1]

    def launched(comm: Communicator) -> int:
        return max((sum(rank.counts.values()) for rank in comm.ranks), default=0)

    return max(comms, key=launched, default=None)


def _operation(comm: Communicator) -> str:
    """Return the name of the operation that was launched most often in a communicator."""
    totals: dict[str, int] = {}
    for rank in comm.ranks:
        for name, count in rank.counts.items():
            totals[name] = totals.get(name, 0) + count
    return max(totals, key=lambda name: totals[name], default="operations")
