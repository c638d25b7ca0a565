"""A snapshot as text, Markdown and HTML: it fits, and text from outside stays text.

Reports of many servers: groups and the worst come first, and no figure is cut.
"""

from __future__ import annotations

import json
import re
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from msgspec.structs import replace

from sparktop.commands.snapshot import render
from sparktop.graphics.cells import cell_width
from sparktop.model.balance import Balance, BalanceWord
from sparktop.model.event import Alert, Event, Finding, FindingKind, Severity
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.ranks import RanksVerdict, RanksView, RanksWord
from sparktop.model.router import RouterView, Sum, Totals
from sparktop.model.snapshot import BackendState, Latency, NodeView, Quantile, Snapshot
from sparktop.model.text import clean
from sparktop.panels.board.events import events_screen
from sparktop.panels.parts.text import row_text
from sparktop.report import html, text_snapshot
from sparktop.report.json_snapshot import to_json
from sparktop.report.markdown import WIDTH, code
from sparktop.report.privacy import Privacy
from sparktop.report.tables import groups_table, keep_worst, omission, snapshot_tables
from sparktop.report.text_snapshot import render as render_text
from stage.fleet import RehearsedFleet
from stage.rehearsal import Rehearsal, RouterPart
from tests.known import known
from tests.report.conftest import NOON, full_backend, full_node
from tests.report.html_page import Page

PLAIN = {"text", "code_inline", "em_open", "em_close", "strong_open", "strong_close"}
"""Inline markup that reports have themselves."""
READER = MarkdownIt("gfm-like", {"html": True, "linkify": False})
HOSTILE = (
    "a|b",
    "`tick` and ``two``",
    "<b>bold</b><script>x</script>",
    "[link](http://evil.example) ![picture](http://evil.example/x.png)",
    "http://evil.example www.evil.example me@evil.example",
    "@everyone #1 :smile: $x$",
    "**bold** _it_ ~~no~~ \\| \\",
    "| --- |",
    "&amp; &#124;",
)


def shown(text: str) -> list[str]:
    """Return the visible text of each inline part: its text and code, without markup."""
    tokens = [token for token in READER.parse(text) if token.type == "inline"]
    return ["".join(child.content for child in token.children or ()) for token in tokens]


def kinds(text: str) -> set[str]:
    """Return the kinds of inline markup in a document."""
    return {
        child.type for token in READER.parse(text) if token.type == "inline" for child in token.children or ()
    }


def test_unknown_is_a_dash(full_snapshot: Snapshot) -> None:
    """A backend that never reported has dashes, and no zeros."""
    row = next(
        line for line in text_snapshot.markdown(full_snapshot).splitlines() if line.startswith("| `b [31mad`")
    )
    assert [cell.strip() for cell in row.strip("|").split("|")][2:] == ["–"] * 6


@pytest.mark.parametrize("name", ["spark-a", "模型" * 40, "x" * 200, "`" * 90])
def test_tables_fit_a_forum_post(full_snapshot: Snapshot, name: str) -> None:
    """No table is wider than 100 columns, whatever the names are; its rows are equally wide and unlike."""
    changed = replace(full_snapshot.backends[0], name=name, model=name, version=name)
    node = replace(full_snapshot.nodes[0], name=name)
    text = text_snapshot.markdown(
        replace(full_snapshot, backends=(changed, *full_snapshot.backends), nodes=(node,))
    )
    tables = [part.splitlines() for part in text.split("\n\n") if part.startswith("|")]
    assert len(tables) >= 7
    for table in tables:
        widths = {cell_width(line) for line in table}
        assert len(widths) == 1
        assert max(widths) <= WIDTH
        rules, *rows = (line.strip("|").split("|") for line in table[1:])
        words = [number for number, rule in enumerate(rules) if not rule.strip().endswith(":")]
        assert len({tuple(row[number] for number in words) for row in rows}) == len(rows)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_text(full_snapshot: Snapshot, name: str) -> None:
    """Markup, links, HTML and pipes in a name are shown as they are, in tables and in lists."""
    backend = replace(full_snapshot.backends[0], name=name)
    event = Event(full_snapshot.taken_at, Severity.INFO, name, name)
    text = text_snapshot.markdown(replace(full_snapshot, backends=(backend,), events=(event,)))
    assert kinds(text) <= PLAIN | {"text_special"}
    lines = shown(text)
    assert any(line == name or (line.endswith("…") and name.startswith(line[:-1])) for line in lines)
    assert f"12:00:00, info, {name}, {name}" in lines


@given(st.text(min_size=1, max_size=60))
def test_code_shows_any_text(text: str) -> None:
    """Whatever clean text is put into a code span of a table's cell is what the reader sees."""
    wanted = clean(text)
    if not wanted:
        return
    table = f"| name |\n| ---- |\n| {code(wanted)} |\n"
    cells = shown(table)
    assert [" ".join(cell.split()) for cell in cells] == ["name", " ".join(wanted.split())]


SCREEN = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1"><text>screen</text></svg>'
HOSTILE_MARKUP = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</td></table></style><style>*{display:none}",
    "' onmouseover='x",
    "<!--",
    "]]>&lt;b&gt;",
)


def test_the_page_holds_the_screen_and_every_figure(full_snapshot: Snapshot) -> None:
    """Screen, badge, time, backends, latencies, nodes, GPUs and alerts are all on the page."""
    text = html.render(full_snapshot, SCREEN)
    assert SCREEN in text
    assert '<span class="badge">simulated</span>' in text
    assert 'datetime="2026-03-04T12:00:00.123Z"' in text
    cells = Page(text).cells
    for word in ("vllm-a", "KV-full", "openai/gpt-oss-120b", "131,072", "NVIDIA GB10", "critical"):
        assert word in cells
    assert cells[cells.index("TTFT") + 2 :][:4] == ["< 10 ms", "200 ms", "250 ms", "> 10 s"]


def test_the_page_needs_nothing_else(full_snapshot: Snapshot) -> None:
    """No script, no link, no picture from elsewhere, and a policy that would not load them."""
    Page(html.render(full_snapshot, SCREEN)).assert_standing_alone()


@pytest.mark.parametrize("name", HOSTILE_MARKUP)
def test_hostile_text_is_shown_and_does_nothing(full_snapshot: Snapshot, name: str) -> None:
    """Whatever a server calls itself is text in a cell: no tag, no attribute, no comment comes of it."""
    usual = Page(html.render(full_snapshot, SCREEN))
    failure = Failure(FailureKind.HTTP, name, 1.0)
    backend = replace(full_snapshot.backends[0], name=name, model=name, version=name, url=name)
    backend = replace(backend, nodes=(name,), finished={name: 1.0})
    dead = replace(full_snapshot.backends[1], name=name, failure=failure)
    sample = known(full_snapshot.nodes[0].sample)
    odd = replace(
        sample,
        rails=(replace(sample.rails[0], name=name),),
        network=(replace(sample.network[0], name=name, errors={name: 1.0}),),
        gpus=(replace(sample.gpus[0], name=name, throttle_reasons=(name,)),),
    )
    node = replace(full_snapshot.nodes[0], name=name, failure=failure, sample=odd)
    alert = replace(full_snapshot.alerts[0], subject=name, message=name)
    event = Event(full_snapshot.taken_at, Severity.INFO, name, name)
    shown = replace(full_snapshot, backends=(backend, dead), nodes=(node,), alerts=(alert,), events=(event,))
    page = Page(html.render(shown, SCREEN))
    assert name in page.cells
    page.assert_shaped_as(usual)
    new = {value for _, value in page.attributes} - {value for _, value in usual.attributes}
    assert new <= {"word info"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("quick of 21:43:48: done", "quick of 21:43:48: done"),
        ("at 12:34, 1:02:03:04: word", "at 12:34, 1:02:03:04: word"),
        ("driver 580.95.05.01, NCCL 2.28.9, 1.2.3.4.5", "driver 580.95.05.01, NCCL 2.28.9, 1.2.3.4.5"),
        ("GPU 0000:0f:00.0 [95], std::vector, a: b", "GPU 0000:0f:00.0 [95], std::vector, a: b"),
        ("10.0.0.2:8000, 10.0.0.2.", "(address), (address)."),
        ("fe80::1%1, ::1, [::1]:80, at:fe80::2", "(address), (address), (address), at:(address)"),
        ("http://[fe80::1]:80/v1 and thor-9:8443", "(address) and (address)"),
        ("ssh me@thor-9 to thor-9, spark.acme.com:22.", "ssh (user)@(address) to (address), (address)."),
        ("4c-bb-47-00-00-01, GPU-0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f", "(address), (address)"),
        ("key q1w2e3r4t5y6u7i8o9p0q1w2e3r4t5y6u7i8", "key (secret)"),
        (
            "NVIDIA-Nemotron-3-Nano-30B-A3B-FP8 in vllm.v1.engine",
            "NVIDIA-Nemotron-3-Nano-30B-A3B-FP8 in vllm.v1.engine",
        ),
        ("2001:db8:0:0:0:0:0:1 and 2001:db8::", "(address) and (address)"),
        ("4c:bb:47:00:00:01, gx10.local:8000, localhost", "(address), (address), (address)"),
    ],
)
def test_addresses_are_told_from_times_and_versions(text: str, shown: str) -> None:
    """A report without addresses keeps times, versions and PCI slots."""
    assert Privacy().text(text) == shown


def test_routers_have_their_rows() -> None:
    """A router stands with its strategy and its backends; one that is down is among what does not answer."""
    alive = Page(html.render(routed(unwatched=1), SCREEN)).cells
    at = alive.index("proxy")
    assert alive[at + 1] == "alive"
    assert alive[at + 3 : at + 6] == ["least-busy", "spark-a, spark-b", "1"]
    down = Page(html.render(routed(reports_setup=False, down_at_s=10), SCREEN)).cells
    assert any("connection refused" in cell for cell in down)
    assert "unreachable" in down


@pytest.mark.parametrize("form", ["txt", "md"])
def test_text_and_markdown_have_the_same_tables_problems_first(full_snapshot: Snapshot, form: str) -> None:
    """A failure has its reason and its age, a verdict of NCCL its answers, a slow GPU what to do."""
    first = replace(full_snapshot.backends[0], ranks=RANKS, page_note="the page changes every 5 s")
    shown = replace(full_snapshot, backends=(first, *full_snapshot.backends[1:]))
    text = re.sub(r"[`*#]", "", " ".join(render(shown, form).split()))
    for words in (
        "no answer 1",
        "No answer - b [31mad, last seen 12 s ago, failing since 12:00:00, connection refused by [red]it",
        f"vllm-a, rank missing, {SENTENCE}, 3 answers over 10 s",
        "spark-a, slow clock, 712 MHz at 97 % load, USB-PD power delivery, check the cable",
        "vllm-a, the page changes every 5 s",
        "Memory left",
        "572.2 MiB",
    ):
        assert words in text, words
    places = [text.index(f" {one.title} ") for one, _ in snapshot_tables(shown)]
    assert places == sorted(places)


SENTENCE = "rank 1 on spark-b does not answer: its process is dead"
VERDICT = RanksVerdict(RanksWord.MISSING, SENTENCE, "look at spark-b first", 3, 10.2)
RANKS = RanksView(VERDICT, 4.0, node="spark-a")


@cache
def routed(**part: object) -> Snapshot:
    return Rehearsal(router=RouterPart(**part)).play(20).snapshot()  # type: ignore[arg-type]  # a test's own words


def test_remedies_and_evidence_have_lines_of_their_own(empty_snapshot: Snapshot) -> None:
    """In text, Markdown and on the page of alerts; JSON has the remedies of each alert as a list."""
    evidence = (("limit", "8 MiB"), ("needed", "1 GiB"))
    finding = Finding(
        FindingKind.MACHINE_SETUP,
        "n",
        "memlock is small",
        of_machine=True,
        fix="raise it",
        evidence=evidence,
        key="memlock",
    )
    alerts = (
        Alert("node:n:machine-setup/memlock", Severity.WARNING, "n", "memlock is small", NOON),
        Alert("backend:b:restarts", Severity.WARNING, "b", "restarted twice", NOON),
    )
    nodes = (NodeView("n", "local", findings=(finding,)),)
    snapshot = replace(empty_snapshot, nodes=nodes, alerts=alerts)
    below = ["→ raise it", "limit: 8 MiB", "needed: 1 GiB"]
    assert "\n".join(["- n, memlock is small", *(f"  {line}" for line in below)]) in render_text(snapshot, 80)
    listed = "\n".join(["- `n`, `memlock is small`", *(f"  - `{line}`" for line in below)])
    assert listed in text_snapshot.markdown(snapshot)
    rows = [row_text(row).strip("│ ") for row in events_screen(snapshot, 80, 20)]
    assert rows[2].startswith("▲ n: memlock is small")
    assert rows[3] == "→ raise it"
    told = json.loads(render(snapshot, "json"))["alerts"]
    assert [alert["remedies"] for alert in told] == [["raise it"], ["read its log"]]


def test_json_has_the_deployments_of_a_router() -> None:
    """A deployment without a backend here is null, and so is what the router does not tell."""
    (router,) = json.loads(json.dumps(to_json(routed(unwatched=1)), allow_nan=False))["routers"]
    assert (router["name"], router["strategy"], router["ok"]) == ("proxy", "least-busy", True)
    assert router["deployments"] == {"spark-1": "spark-a", "spark-2": "spark-b", "cloud-1": None}
    assert router["backends"] == ["spark-a", "spark-b"]
    assert {router[key] for key in ("error", "slow", "cooldown_s", "queued", "in_flight", "sent")} == {None}


@pytest.fixture(scope="module")
def fleet() -> Snapshot:
    """Return 200 servers and 45 machines."""
    return RehearsedFleet(200, 45).play(14).snapshot()


def test_details_are_of_the_worst_and_the_report_says_so(fleet: Snapshot) -> None:
    """Those that are down are among them."""
    few = keep_worst(fleet)
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
    assert "openai/gpt-oss-120b" in flat
    for figure in ("12,346", "235k", "1,024", "2,048", "< 10 ms", "250 ms"):
        assert flat.count(figure) >= count
