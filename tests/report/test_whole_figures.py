"""No report cuts a figure, with 1 to 12 backends, long names and large numbers, also on 80 columns."""

from __future__ import annotations

import dataclasses
import re

import pytest
from msgspec.structs import replace

from sparktop.graphics.cells import cell_width
from sparktop.model.balance import Balance, BalanceWord
from sparktop.model.event import Alert, Severity
from sparktop.model.router import RouterView, Sum, Totals
from sparktop.model.snapshot import BackendState, Snapshot
from sparktop.report.markdown import WIDTH, narrowed, render
from sparktop.report.text_snapshot import render as render_text
from tests.report.conftest import NOON, full_backend, full_node

COUNTS = (1, 2, 5, 12)
NAMES = ("spark-{}", "192.168.100.{}:30000")
ALERT = "no answer for 3 min 12 s (90.5 ms a poll), memory 118.9 of 121.6 GiB, swap-in 12.5 MiB/s, 4 GPUs"


def fleet(base: Snapshot, count: int, pattern: str) -> Snapshot:
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


def cells(markdown: str) -> list[list[str]]:
    """Return the cells of each table row of a document."""
    rows = [line for line in markdown.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("pattern", NAMES)
@pytest.mark.parametrize("width", [80, WIDTH])
def test_markdown_cuts_only_names(empty_snapshot: Snapshot, count: int, pattern: str, width: int) -> None:
    """What ends in dots is a name or a list of names; the tables fit the width."""
    shown = fleet(empty_snapshot, count, pattern)
    text = narrowed(render(shown), width)
    cut = {cell for row in cells(text) for cell in row if "…" in cell}
    whole = {"openai/gpt-oss-120b", "litellm-proxy", *(one.name for one in shown.backends)}
    lists = {", ".join(one.backends) for one in shown.routers}
    for cell in cut:
        assert any(name.startswith(cell.strip("`").removesuffix("…").rstrip(" ,")) for name in whole | lists)
    assert max(cell_width(line) for line in text.splitlines() if line.startswith("|")) <= width


@pytest.mark.parametrize("count", COUNTS[1:])
@pytest.mark.parametrize("pattern", NAMES)
def test_every_backend_of_a_group_has_its_shares(empty_snapshot: Snapshot, count: int, pattern: str) -> None:
    """Starved time and requests of each backend are whole, a row for each."""
    shown = fleet(empty_snapshot, count, pattern)
    table = render(shown).partition("### Balance by backend")[2].partition("###")[0]
    rows = {row[1]: row[2:] for row in cells(table)}
    for number, one in enumerate(shown.backends):
        assert rows[f"`{one.name}`"] == [f"{12.34 + number:.1f}", f"{100 - number} %", f"{100 / count:.0f} %"]


def test_text_has_no_dash_where_a_sentence_can_do_without(empty_snapshot: Snapshot) -> None:
    """The line of a process leaves out unknown GPU memory."""
    node = full_node()
    assert node.sample is not None
    gpus = tuple(
        dataclasses.replace(
            gpu, processes=tuple(dataclasses.replace(one, memory_bytes=None) for one in gpu.processes or ())
        )
        for gpu in node.sample.gpus
    )
    unknown = replace(node, sample=dataclasses.replace(node.sample, gpus=gpus))
    before, after = (
        " ".join(render_text(replace(empty_snapshot, nodes=(one,)), 80).split()) for one in (node, unknown)
    )
    assert "60.0 GiB of the GPU" in before
    assert "process 4242" in after
    assert "of the GPU" not in after


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("pattern", NAMES)
@pytest.mark.parametrize("width", [60, 80, 120])
def test_text_cuts_nothing(empty_snapshot: Snapshot, count: int, pattern: str, width: int) -> None:
    """Titles, names, figures and messages are whole: what finds no room in the row is on a line below."""
    shown = fleet(empty_snapshot, count, pattern)
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
