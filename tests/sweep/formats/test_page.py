"""A report of a sweep as a web page: complete, self-contained, safe against hostile names.

What a report never shows, and what it shows on request.
"""

from __future__ import annotations

import re

import pytest

from sparktop.sweep.compare.series import load_reference
from sparktop.sweep.formats.written import SweepPrivacy, sweep_report
from sparktop.sweep.result.results import LevelResult, SweepResult, TargetResult
from tests.report.html_page import Page
from tests.sweep.formats.full_results import full_sweep
from tests.sweep.made_results import made_series, made_sweep

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


FORMATS = ("md", "html", "csv", "json", "svg")
CANARY = "canary7"
ALL = [
    (form, mode)
    for form in FORMATS
    for mode in (SweepPrivacy(), SweepPrivacy(addresses=True), SweepPrivacy(anonymous=True))
]


def secret_sweep() -> SweepResult:
    """Return a sweep whose messages and addresses hold secrets in every usual form."""
    messages = (
        f"Incorrect API key provided: sk-{CANARY}abcdef",
        f"Authorization: Bearer {CANARY}",
        f"x-litellm-api-key: {CANARY}",
        f'{{"api_key": "{CANARY}"}}',
        f"GET http://user:{CANARY}@10.1.2.3:4000/v1?token={CANARY}#{CANARY} failed",
        f"password={CANARY}",
        f"hf_{CANARY}abcdef is no token of this organisation",
    )
    result = full_sweep(url=f"https://user:{CANARY}@10.1.2.3:4000/v1?key={CANARY}")
    refused = tuple(
        LevelResult(concurrency=1, pp=1000 + number, error=words) for number, words in enumerate(messages)
    )
    odd = TargetResult(
        name=f"http://me:{CANARY}@host", url="http://10.1.2.5", error=messages[4], levels=refused
    )
    return result.with_target(odd).model_copy(update={"status": "failed", "stop_reason": messages[0]})


@pytest.mark.parametrize(("form", "privacy"), ALL)
def test_no_format_holds_a_secret(form: str, privacy: SweepPrivacy) -> None:
    """Keys, tokens, passwords in addresses: in no format, whatever else is shown."""
    assert CANARY not in sweep_report(
        secret_sweep(), form, SweepPrivacy(privacy.addresses, privacy.anonymous)
    )


@pytest.mark.parametrize("form", FORMATS)
def test_addresses_are_shown_only_on_request(form: str) -> None:
    """Names stand for the servers; a request shows the address without user and query."""
    result = secret_sweep()
    assert "10.1.2" not in sweep_report(result, form)
    if form in {"md", "html", "json"}:
        assert "https://10.1.2.3:4000/v1" in sweep_report(result, form, SweepPrivacy(addresses=True))


def test_the_command_names_targets_or_their_addresses() -> None:
    """As the reader of the report can use it."""
    assert "sparktop sweep proxy alpha -c 2,4,8" not in sweep_report(full_sweep(), "md")
    assert "sparktop sweep proxy alpha --pp 100" in sweep_report(full_sweep(), "md")
    text = sweep_report(full_sweep(), "md", SweepPrivacy(addresses=True))
    assert "sweep proxy=http://10.1.2.3:4000 alpha=http://10.1.2.4:8000" in text
    assert "--slo ttft_p90_ms=2000" in text


@pytest.mark.parametrize("form", FORMATS)
def test_an_anonymous_report_has_aliases_for_names(form: str) -> None:
    """The same alias everywhere; no name, no path, no command line is left."""
    result = full_sweep(router="hamlet", alone="ophelia", model="/home/yorick/models/Model-7B")
    words = "ophelia at 10.1.2.4 reads /home/yorick/x.toml on node-x"
    targets = (result.targets[0].model_copy(update={"error": words}), *result.targets[1:])
    text = sweep_report(result.model_copy(update={"targets": targets}), form, SweepPrivacy(anonymous=True))
    for word in ("hamlet", "ophelia", "node-x", "yorick", "10.1.2", "sparktop sweep hamlet", "omega"):
        assert word not in text, word
    assert "router-1" in text
    assert "backend-1" in text
    if form in {"md", "html", "json"}:
        assert "backend-1 at (address) reads (path) on node-1" in text
        assert "Model-7B" in text


def test_aliases_are_stable_and_a_machine_has_the_number_of_its_server() -> None:
    """Two reports of one sweep have the same aliases."""
    result = full_sweep()
    level = result.targets[0].levels[0]
    sides = {"omega": level.hardware["node-x"], "alpha": level.hardware["node-y"]}
    targets = (
        result.targets[0].model_copy(update={"levels": (level.model_copy(update={"hardware": sides}),)}),
    )
    result = result.model_copy(update={"targets": targets})
    found = SweepPrivacy(anonymous=True).of_result(result)
    assert found == SweepPrivacy(anonymous=True).of_result(result)
    level = found.targets[0].levels[0]
    assert sorted(level.hardware) == ["node-1", "node-2"]
    assert sorted(level.served_by) == sorted(level.busy_batch) == ["backend-1", "backend-2"]
    assert [sorted(split) for split in level.runs_split] == [["backend-1", "backend-2"]] * 3
    assert level.each is not None
    assert level.each.backends == ("backend-1", "backend-2")


def test_published_tables_keep_their_names_and_other_files_lose_them() -> None:
    """A published source is not hidden."""
    table = load_reference("ref:spark-topologies-2026-03").series
    own = made_series("ophelia", {1: (1.0,)})
    first, *rest = SweepPrivacy(anonymous=True).of_series([own, *table])
    assert (first.name, first.source) == ("backend-1", "file-1")
    assert rest == list(table)
