"""Reports of hundreds of servers: groups and the worst come first, and details are of the worst."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from sparktop.analysis.state import MOST_LISTED, Top, wall_of
from sparktop.commands.snapshot import render
from sparktop.model.snapshot import BackendState, Latency, Quantile, Snapshot
from sparktop.panels.board.wall_lines import top_keys
from sparktop.report import cell
from sparktop.report.tables import MOST, groups_table, is_large, narrowed, omission, worst_table
from stage.fleet import RehearsedFleet
from stage.rehearsal import Rehearsal


@pytest.fixture(scope="module")
def fleet() -> Snapshot:
    """Return 200 servers and 45 machines."""
    return RehearsedFleet(200, 45).play(14).snapshot()


def test_groups_come_first_and_the_worst_of_them_before_the_others(fleet: Snapshot) -> None:
    """With servers, those that are down, and each state with its number; machines last."""
    rows = groups_table(fleet).rows
    assert rows[0][:3] == ("llama-70b", "24", "2")
    assert rows[0][-1].startswith("2 unreachable, ")
    assert rows[-1][0] == "machines"
    assert sum(int(row[1]) for row in rows[:-1]) == 200


def test_the_worst_are_named_with_figure_and_group(fleet: Snapshot) -> None:
    """At most ten of each list, the highest first."""
    rows = worst_table(fleet).rows
    waiting = [row for row in rows if row[0] == "most waiting"]
    assert 0 < len(waiting) <= 10
    figures = [int(row[2]) for row in waiting]
    assert figures == sorted(figures, reverse=True)
    assert {row[3] for row in waiting} == {"glm-air"}


def test_details_are_of_the_worst_and_the_report_says_so(fleet: Snapshot) -> None:
    """Those that are down are among them."""
    few = narrowed(fleet)
    assert (len(few.backends), len(few.nodes)) == (20, 20)
    assert {"llama-001", "llama-002"} <= {one.name for one in few.backends}
    words = (
        "Of 200 servers and 45 machines, details are those of the 20 worst: --format json has all of them."
    )
    assert omission(fleet) == words
    for form in ("txt", "md"):
        assert words in " ".join(render(fleet, form).split())


@pytest.mark.parametrize("form", ["txt", "md"])
def test_the_report_is_short_and_begins_with_the_groups(fleet: Snapshot, form: str) -> None:
    """Before any server of its own; JSON has every server."""
    text = render(fleet, form)
    assert len(text.splitlines()) < 600
    assert text.index("llama-70b") < text.index("llama-001")
    assert all(f'"name": "{one.name}"' in render(fleet, "json") for one in fleet.backends[:3])


def test_reports_of_few_servers_are_as_they_were() -> None:
    """Reports of few servers have no further tables, and show all servers in detail."""
    few = Rehearsal(backends=4).play(3).snapshot()
    assert not is_large(few)
    assert narrowed(few) is few
    assert (groups_table(few).rows, worst_table(few).rows, omission(few)) == ((), (), "")
    assert len(few.backends) <= MOST


def test_json_has_each_group_with_its_states(fleet: Snapshot) -> None:
    """The worst first; what is not known is null, and the states add up to the servers."""
    groups = json.loads(render(fleet, "json"))["groups"]
    assert [one["name"] for one in groups] == [row[0] for row in groups_table(fleet).rows[:-1]]
    assert all(sum(one["states"].values()) == one["servers"] for one in groups)
    assert groups[0]["states"]["unreachable"] == 2
    idle = next(one for one in groups if one["name"] == "phi")
    assert (idle["running"], idle["ttft_p95_ms"]) == (0.0, None)


def test_json_has_the_lists_of_the_screen(fleet: Snapshot) -> None:
    """JSON has the same servers and machines in the same order with the same figures, at most 100 a list."""
    worst, wall = json.loads(render(fleet, "json"))["worst_lists"], wall_of(fleet)
    keys = {Top.WAITING: "waiting", Top.KV: "kv_cache", Top.TTFT: "ttft_p95", Top.CLOCK: "slow_clock"}
    assert set(worst) == set(keys.values())
    for top, key in keys.items():
        names = [one["name"] for one in worst[key]]
        assert 0 < len(names) <= MOST_LISTED
        assert names == top_keys(wall, top, MOST_LISTED)
    rows = worst_table(fleet).rows
    waits = [str(round(one["waiting"])) for one in worst["waiting"][:10]]
    assert waits == [row[2] for row in rows if row[0] == "most waiting"]
    fullest = [row[2] for row in rows if row[0] == "fullest KV"]
    assert [cell.percent(one["kv_cache_percent"]) for one in worst["kv_cache"][:10]] == fullest
    slowest = [row[2] for row in rows if row[0] == "slowest TTFT p95"]
    assert [cell.duration(one["ttft_p95_ms"] / 1000) for one in worst["ttft_p95"][:10]] == slowest
    clocks = {node.name: node.sm_clock_mhz for node in wall.nodes}
    assert all(one["sm_clock_mhz"] == clocks[one["name"]] for one in worst["slow_clock"])


def test_a_list_in_json_is_bounded_and_a_bound_has_its_sign(fleet: Snapshot) -> None:
    """Of 200 servers with waiting requests 100 are listed; beyond the last bucket the quantile is above."""
    last = Latency(p95=Quantile(60.0, above=True), count=5.0)
    servers = tuple(
        replace(one, state=BackendState.QUEUEING, waiting=float(at + 1), ttft=last, failure=None)
        for at, one in enumerate(fleet.backends)
    )
    worst = json.loads(render(replace(fleet, backends=servers), "json"))["worst_lists"]
    assert [one["waiting"] for one in worst["waiting"]] == [200.0 - at for at in range(100)]
    assert len(worst["ttft_p95"]) == 100
    assert {(one["ttft_p95_ms"], one["bound"]) for one in worst["ttft_p95"]} == {(60000.0, ">")}
