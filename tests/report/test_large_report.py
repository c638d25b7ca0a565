"""Reports of many servers: groups and the worst come first, and no figure is cut."""

from __future__ import annotations

import json
import re

import pytest
from msgspec.structs import replace

from sparktop.analysis.state import MOST_LISTED, Top, wall_of
from sparktop.commands.snapshot import render
from sparktop.graphics.cells import cell_width
from sparktop.model.balance import Balance, BalanceWord
from sparktop.model.event import Alert, Severity
from sparktop.model.router import RouterView, Sum, Totals
from sparktop.model.snapshot import BackendState, Latency, Quantile, Snapshot
from sparktop.panels.board.wall_lines import top_keys
from sparktop.report import cell, markdown
from sparktop.report.markdown import WIDTH
from sparktop.report.tables import groups_table, narrowed, omission, worst_table
from sparktop.report.text_snapshot import render as render_text
from stage.fleet import RehearsedFleet
from tests.report.conftest import NOON, full_backend, full_node


@pytest.fixture(scope="module")
def fleet() -> Snapshot:
    """Return 200 servers and 45 machines."""
    return RehearsedFleet(200, 45).play(14).snapshot()


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
    document = render(fleet, "json")
    assert all(f'"name": "{one.name}"' in document for one in fleet.backends)


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


COUNTS = (1, 12)
NAMES = ("spark-{}", "192.168.100.{}:30000")
ALERT = "no answer for 3 min 12 s (90.5 ms a poll), memory 118.9 of 121.6 GiB, swap-in 12.5 MiB/s, 4 GPUs"


def crowd(base: Snapshot, count: int, pattern: str) -> Snapshot:
    """Return `count` backends and nodes with figures of the greatest usual widths."""
    names = [pattern.format(number + 100) for number in range(count)]
    backends = tuple(
        replace(
            full_backend(),
            name=name,
            nodes=(name,),
            state=list(BackendState)[(number + 2) % len(BackendState)],
            state_window_s=120.0,
            generation_tps=12345.6,
            prompt_tps=234567.0,
            running=1024.0,
            waiting=2048.0,
            kv_cache_percent=100.0,
        )
        for number, name in enumerate(names)
    )
    judged = Balance(
        "openai/gpt-oss-120b",
        tuple(names),
        BalanceWord.OSCILLATING,
        BalanceWord.BALANCED,
        since=NOON,
        period_s=10.4,
        lost_percent=34.0,
        starved_percent={name: 100.0 - number for number, name in enumerate(names)},
        requests_share=dict.fromkeys(names, 1 / count),
        mean_load={name: 12.34 + number for number, name in enumerate(names)},
        router="litellm-proxy",
        reasons=("one backend leads",),
    )
    return replace(
        base,
        backends=backends,
        nodes=tuple(replace(full_node(), name=name) for name in names),
        routers=(RouterView("litellm-proxy", "http://127.0.0.1:4000", backends=tuple(names)),),
        balance=(judged,) if count > 1 else (),
        alerts=(Alert("down:b", Severity.CRITICAL, names[0], ALERT, NOON),),
        totals=Totals(*(Sum(value, 1, 1) for value in (148147.2, 2814804.0, 12288.0, 24576.0))),
    )


def cells(text: str) -> list[list[str]]:
    """Return the cells of each table row of a document."""
    rows = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("pattern", NAMES)
@pytest.mark.parametrize("width", [80, WIDTH])
def test_markdown_cuts_only_names(empty_snapshot: Snapshot, count: int, pattern: str, width: int) -> None:
    """What ends in dots is a name or a list of names; the tables fit the width."""
    shown = crowd(empty_snapshot, count, pattern)
    text = markdown.narrowed(markdown.render(shown), width)
    cut = {cell for row in cells(text) for cell in row if "…" in cell}
    whole = {"openai/gpt-oss-120b", "litellm-proxy", *(one.name for one in shown.backends)}
    lists = {", ".join(one.backends) for one in shown.routers}
    for part in cut:
        assert any(name.startswith(part.strip("`").removesuffix("…").rstrip(" ,")) for name in whole | lists)
    assert max(cell_width(line) for line in text.splitlines() if line.startswith("|")) <= width


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("pattern", NAMES)
@pytest.mark.parametrize("width", [60, 80, 120])
def test_text_cuts_nothing(empty_snapshot: Snapshot, count: int, pattern: str, width: int) -> None:
    """Titles, names, figures and messages are whole: what finds no room in the row is on a line below."""
    shown = crowd(empty_snapshot, count, pattern)
    text = render_text(shown, width)
    assert "…" not in text
    assert max(map(cell_width, text.splitlines())) <= width
    flat = " ".join(text.split())
    for words in (ALERT, "waiting 24.6k", "alerts 1"):
        assert words in flat
    for one in shown.backends:
        assert re.search(rf"^{re.escape(one.name)} ", text, re.MULTILINE)
    assert re.search("model openai/gpt-oss-120b|openai/gpt-oss-120b$", text, re.MULTILINE)
    for figure in ("12,346", "235k", "1,024", "2,048", "< 10 ms", "250 ms"):
        assert flat.count(figure) >= count
