"""One cause for the levels of a search whose limits of decode steps alternate.

Which server answered, run by run: a router that sends each run elsewhere is not balanced.
"""

from __future__ import annotations

import csv
import io

from sparktop.model.load import Level, LoadKind, concurrency_point
from sparktop.sweep.formats import exports, report
from sparktop.sweep.plan.capacity import parse_conditions
from sparktop.sweep.plan.plan import Capacity, TargetKind
from sparktop.sweep.result.level import (
    level_result,
    with_common_cause,
)
from sparktop.sweep.result.measure import collect
from sparktop.sweep.result.results import LevelResult, LimitSide, ServerSide
from sparktop.sweep.run.capacity import capacity_answer
from sparktop.sweep.run.judgement import LoadVerdict, Shares
from sparktop.sweep.run.search import CapacitySearch
from tests.sweep.made_results import made_sweep, request

READS, COMPUTES, KV = "memory bandwidth", "decode compute", "KV cache"


def _levels(*kinds: str) -> dict[float, LevelResult]:
    return {
        float(load): LevelResult(
            concurrency=load,
            load=LoadKind.AGENTS,
            value=load,
            runs=1,
            limited_by=LimitSide(kind=kind, reason=f"figures at {load}"),
        )
        for load, kind in enumerate(kinds, 1)
    }


def test_levels_get_the_common_cause_beside_their_own_figures() -> None:
    """A level that seemed limited by computing says so in its reason."""
    levels = with_common_cause(list(_levels(READS, COMPUTES, READS, KV).values()))
    found = [level.limited_by for level in levels if level.limited_by is not None]
    assert [one.kind for one in found] == [READS, READS, READS, KV]
    assert (
        found[1].reason == "as at most levels; by its own figures decode compute, within noise: figures at 2"
    )


def test_an_answer_names_the_common_cause_with_the_figures_of_the_nearest_level() -> None:
    """3 fails, seemingly limited by computing, most levels by reading: the figures are those of 2."""
    (condition,) = parse_conditions("ttft_p90_ms=2000", LoadKind.AGENTS)
    search = CapacitySearch(Capacity(LoadKind.AGENTS, (condition,)))
    for load in (1.0, 2.0, 3.0, 4.0):
        met = 100 if load < 3 else 0
        shares = Shares(condition, 0.9, met, 100, 0.0, 1.0)
        search.add(load, LoadVerdict(met > 0, (shares,), 100, 1.0))
    levels = _levels(READS, READS, COMPUTES, READS)
    assert levels[2.0].limited_by is not None
    advised = levels[2.0].limited_by.model_copy(update={"hint": "more requests"})
    levels[2.0] = levels[2.0].model_copy(update={"limited_by": advised})
    answer = capacity_answer(search, levels, complete=True)
    assert answer.fails == 3
    assert answer.ran_out is not None
    found = answer.ran_out
    assert (found.kind, found.value, found.hint, found.elsewhere) == (READS, 2.0, None, {})
    assert found.evidence.startswith("figures at 2")


SERVERS = {"spark-a": ServerSide(), "spark-b": ServerSide()}


def herded(*runs: str, concurrency: int = 4) -> LevelResult:
    """Return a level of a router; each run is written as the letters of the servers that answered."""
    events = [
        event
        for run, letters in enumerate(runs)
        for number, letter in enumerate(letters)
        for event in request(f"{run}-{number}", 10.0 * run, run=run, served_by=f"spark-{letter}")
    ]
    made = level_result(Level("proxy", concurrency_point(concurrency), 100, 4), collect(events))
    return made.model_copy(update={"backends": SERVERS, "busy_batch": {"spark-a": 4.0, "spark-b": 3.9}})


HERDED = herded("aaaa", "bbbb")


def test_the_report_and_the_table_state_the_largest_share_of_a_run() -> None:
    """Markdown has a table of the shares, CSV a column; neither calls a router that herds even."""
    result = made_sweep(("proxy", [HERDED, herded("ab", "ba", concurrency=2)]))
    (proxy,) = result.targets
    routed = result.with_target(proxy.model_copy(update={"kind": TargetKind.ROUTER}))
    cells = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in report.sweep_markdown(routed).splitlines()
    ]
    assert ["c4", "4", "4.0", "4", "3.9", "100 %"] in cells
    assert ["c2", "2", "4.0", "2", "3.9", "50 %"] in cells
    assert "Who answered" not in report.sweep_markdown(result)
    rows = list(csv.DictReader(io.StringIO(exports.to_csv(routed))))
    assert [row["largest_run_share_percent"] for row in rows] == ["50.0", "100.0"]
