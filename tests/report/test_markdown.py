"""The Markdown report: tables that fit, and text from outside that stays text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from msgspec.structs import replace

from sparktop.graphics.cells import cell_width
from sparktop.model.event import Event, Severity
from sparktop.model.snapshot import Snapshot, SpeedState
from sparktop.model.text import clean
from sparktop.report.markdown import WIDTH, code, render

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


def shown(markdown: str) -> list[str]:
    """Return the visible text of each inline part: its text and code, without markup."""
    tokens = [token for token in READER.parse(markdown) if token.type == "inline"]
    return ["".join(child.content for child in token.children or ()) for token in tokens]


def kinds(markdown: str) -> set[str]:
    """Return the kinds of inline markup in a document."""
    return {
        child.type
        for token in READER.parse(markdown)
        if token.type == "inline"
        for child in token.children or ()
    }


def test_everything_watched_is_in_it(full_snapshot: Snapshot) -> None:
    """Backends with their state, nodes, GPUs, latencies and alerts are there, and the simulation is said."""
    text = render(full_snapshot)
    assert text.startswith("## sparktop snapshot (simulated)\n\n2026-03-04 12:00:00 UTC")
    for word in ("`vllm-a`", "KV-full", "`openai/gpt-oss-120b`", "TTFT", "`NVIDIA GB10`", "### Alerts"):
        assert word in text


def test_an_address_is_a_name_that_fits(full_snapshot: Snapshot) -> None:
    """A backend called by its address and port, as those that are found are, is cut in no table."""
    backend = replace(full_snapshot.backends[0], name="192.168.100.111:30000")
    assert "…" not in render(replace(full_snapshot, backends=(backend,)))


def test_unknown_is_a_dash(full_snapshot: Snapshot) -> None:
    """A backend that never reported has dashes, and no zeros."""
    row = next(line for line in render(full_snapshot).splitlines() if line.startswith("| `b [31mad`"))
    assert [cell.strip() for cell in row.strip("|").split("|")][2:] == ["–"] * 6


@pytest.mark.parametrize("name", ["spark-a", "模型" * 40, "x" * 200, "`" * 90])
def test_tables_fit_a_forum_post(full_snapshot: Snapshot, name: str) -> None:
    """No table is wider than 100 columns, whatever the names are, and its rows are equally wide."""
    changed = replace(full_snapshot.backends[0], name=name, model=name, version=name)
    node = replace(full_snapshot.nodes[0], name=name)
    text = render(replace(full_snapshot, backends=(changed, *full_snapshot.backends), nodes=(node,)))
    tables = [part.splitlines() for part in text.split("\n\n") if part.startswith("|")]
    assert len(tables) >= 7
    for table in tables:
        widths = {cell_width(line) for line in table}
        assert len(widths) == 1
        assert max(widths) <= WIDTH


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_text(full_snapshot: Snapshot, name: str) -> None:
    """Markup, links, HTML and pipes in a name are shown as they are, in tables and in lists."""
    backend = replace(full_snapshot.backends[0], name=name)
    event = Event(full_snapshot.taken_at, Severity.INFO, name, name)
    text = render(replace(full_snapshot, backends=(backend,), events=(event,)))
    assert kinds(text) <= {
        "text",
        "text_special",
        "code_inline",
        "em_open",
        "em_close",
        "strong_open",
        "strong_close",
    }
    lines = shown(text)
    assert any(line == name or (line.endswith("…") and name.startswith(line[:-1])) for line in lines)
    assert f"12:00:00, info, {name}, {name}" in lines


def test_names_stand_in_code(full_snapshot: Snapshot) -> None:
    """Names are in code spans, whose addresses and mentions forums do not turn into links."""
    backend = replace(full_snapshot.backends[0], name="http://evil.example", model="@www.evil.example")
    page = READER.render(render(replace(full_snapshot, backends=(backend,))))
    for name in ("http://evil.example", "@www.evil.example"):
        assert page.count(name) == page.count(f"<code>{name}</code>") > 0


@settings(max_examples=150)
@given(st.text(min_size=1, max_size=60))
def test_code_shows_any_text(text: str) -> None:
    """Whatever clean text is put into a code span of a table's cell is what the reader sees."""
    wanted = clean(text)
    if not wanted:
        return
    table = f"| name |\n| ---- |\n| {code(wanted)} |\n"
    cells = shown(table)
    assert [" ".join(cell.split()) for cell in cells] == ["name", " ".join(wanted.split())]


def test_nothing_watched_is_said(empty_snapshot: Snapshot) -> None:
    """An empty report says that it is empty."""
    assert "Nothing is watched." in render(empty_snapshot)


def test_a_slow_machine_says_what_to_do(full_snapshot: Snapshot) -> None:
    """Cause and fix of a slow state stand among what is wrong; a machine that is well has no line there."""
    text = render(full_snapshot)
    assert "### Speed" in text
    assert "`USB-PD power delivery`, `check the cable`" in text
    well = replace(full_snapshot.nodes[0], speed=SpeedState("normal", "2400 MHz"))
    assert "### Speed" not in render(replace(full_snapshot, nodes=(well,)))
