"""Which server answered, run by run: a router that sends each run elsewhere is not balanced."""

from __future__ import annotations

import csv
import io

from sparktop.model.load import Level, concurrency_point
from sparktop.sweep.formats import exports, report
from sparktop.sweep.plan.plan import TargetKind
from sparktop.sweep.result.level import (
    level_result,
)
from sparktop.sweep.result.measure import collect
from sparktop.sweep.result.results import LevelResult, ServerSide
from tests.sweep.made_results import made_sweep, request

SERVERS = {name: ServerSide() for name in ("spark-a", "spark-b")}


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
