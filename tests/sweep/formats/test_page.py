"""A report of a sweep as a web page: complete, self-contained, safe against hostile names."""

from __future__ import annotations

import re

import pytest

from sparktop.sweep.compare.series import load_reference
from sparktop.sweep.formats.written import sweep_report
from sparktop.sweep.result.results import SweepResult
from tests.report.html_page import Page
from tests.sweep.formats.full_results import full_sweep
from tests.sweep.made_results import made_sweep

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</title></style><style>*{display:none}",
    "a|b `c` **d**",
    "&#124;<!--",
)


def page_of(result: SweepResult) -> tuple[str, Page]:
    text = sweep_report(result, "html")
    return text, Page(text)


def test_the_page_holds_everything_that_the_screen_knows() -> None:
    """Answer, plots, tables, machines, split, marks with codes, every level, command and definitions."""
    text, page = page_of(full_sweep())
    assert "<strong><code>proxy</code>: first token p90 ≤ 2 s holds to c = 4" in text
    headings = re.findall(r"<(?:h2|summary)[^>]*>(.*?)</(?:h2|summary)>", text)
    assert [re.sub(r"<[^>]*>", "", one) for one in headings] == [
        "Decode (tok/s, higher is better)",
        "Prefill (tok/s, higher is better)",
        "TTFT (ms, lower is better)",
        "Decode (tok/s): spread over runs",
        "proxy",
        "Throughput (tok/s): proxy",
        "Latency (ms): proxy",
        "Levels: proxy",
        "Who answered: proxy",
        "alpha",
        "Throughput (tok/s): alpha",
        "Latency (ms): alpha",
        "Levels: alpha",
        "Behind the figures",
        "Machines",
        "Decode (tok/s): 2 independent engines at best",
        "Notes",
        "Warnings, and why levels are slow",
        "Everything about proxy",
        "Everything about alpha",
        "The same again",
        "What the figures mean",
    ]
    assert text.count('class="plot"') == 5
    for cell in ("71 °C", "48 W", "9.0 GiB", "20 %"):
        assert cell in page.cells
    assert "alpha had 2 waiting" in text
    assert "proxy alpha --pp 100 --tg 4 --mode burst --runs 3" in text
    assert any("alpha:omega = 0:2, 1:1, 2:0" in cell for cell in page.cells)


def test_the_page_needs_nothing_else() -> None:
    """No script, no link, no picture from elsewhere, and a policy that would not load them."""
    text, page = page_of(full_sweep())
    assert not page.tags & {"script", "link", "img", "iframe", "object", "a", "base", "form"}
    assert not {name for name, _ in page.attributes} & {"src", "href", "srcset", "style", "onerror"}
    assert "default-src 'none'" in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")
    assert not re.search(r"url\(|@import", text)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_shown_and_do_nothing(name: str) -> None:
    """As a target, a server, a model and in a message: no tag, no attribute and no comment comes of them."""
    _, usual = page_of(full_sweep())
    result = full_sweep(router=f"r{name}", alone=name, model=name)
    text, page = page_of(result.model_copy(update={"status": "failed", "stop_reason": name}))
    assert page.tags == usual.tags
    assert page.comments == []
    assert {key for key, _ in page.attributes} == {key for key, _ in usual.attributes}
    assert any(name in cell for cell in page.cells)
    assert text.count("<title>sparktop sweep, ") == 1


@pytest.mark.parametrize("form", ["md", "html", "csv", "svg", "json"])
def test_no_format_holds_a_control_character_of_a_name(form: str) -> None:
    """Escape sequences, marks that turn the direction of text, and zero-width characters are gone."""
    name = "a\x1b[31m\u202eb\u200b\x07|c"
    text = sweep_report(full_sweep(router=f"r{name}", alone=name, model=name), form)
    assert not {"\x1b", "\x07", "\u202e", "\u200b"} & set(text)
    assert "a [31mb" in text


def test_a_published_table_stands_beside_the_sweep() -> None:
    """In the plots as a dotted curve, in tables with the difference; in Markdown the tables alone."""
    reference = load_reference("ref:spark-topologies-2026-03")
    level = full_sweep().targets[1].levels[0]
    own = level.model_copy(update={"pp": 1024, "tg": 128})
    result = made_sweep(("mine", [own]))
    text = sweep_report(result, "html", beside=reference.series)
    assert 'class="curve reference"' in text
    assert "Decode: theirs and ours" in text
    plain = sweep_report(result, "md", beside=reference.series)
    assert "## Beside `" in plain
    assert re.search(r"^\| Source +\| Concurrency \| Theirs \(tok/s\) \| +`mine` \|$", plain, re.MULTILINE)
    assert re.search(r"^\| `solo` +\| +c1 \| +57\.5 \| 4\.0 \(−93\.1 %\) \|$", plain, re.MULTILINE)
    assert "<svg" not in plain
