"""The page: complete, self-contained, and safe against what servers call themselves."""

from __future__ import annotations

import dataclasses
import re

import pytest
from msgspec.structs import replace

from sparktop.model.event import Event, Severity
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.snapshot import Snapshot
from sparktop.panels.parts.figures import STATE_ROLES
from sparktop.report.html import render
from stage.rehearsal import Rehearsal, RouterPart
from tests.report.html_page import Page

pytestmark = pytest.mark.long

SCREEN = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1"><text>screen</text></svg>'
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</td></table></style><style>*{display:none}",
    "' onmouseover='x",
    "<!--",
    "]]>&lt;b&gt;",
)


def test_the_page_holds_the_screen_and_every_figure(full_snapshot: Snapshot) -> None:
    """Screen, badge, time, backends, latencies, nodes, GPUs, sensors and alerts are all on the page."""
    text = render(full_snapshot, SCREEN)
    assert SCREEN in text
    assert '<span class="badge">simulated</span>' in text
    assert 'datetime="2026-03-04T12:00:00.123Z"' in text
    cells = Page(text).cells
    for word in ("vllm-a", "KV-full", "openai/gpt-oss-120b", "131,072", "NVIDIA GB10", "nvme", "critical"):
        assert word in cells
    assert cells[cells.index("TTFT") + 2 :][:4] == ["< 10 ms", "200 ms", "250 ms", "> 10 s"]


def test_the_page_tells_of_memory_speed_and_processes(full_snapshot: Snapshot) -> None:
    """Memory's parts, trend, speed with cause and fix, RDMA errors, rails and processes have rows."""
    cells = Page(render(full_snapshot, SCREEN)).cells
    at = cells.index("GPU processes")
    assert cells[at + 1 : at + 3] == ["60.0 GiB", "47 %"]
    at = cells.index("slow clock")
    assert cells[at + 1 : at + 4] == ["712 MHz at 97 % load", "USB-PD power delivery", "check the cable"]
    assert "14 min" in cells
    assert "out_of_sequence 2.5" in cells
    assert cells[cells.index("sys_total") + 1] == "82.5 W"
    at = cells.index("VLLM::EngineCore DP0 · m")
    assert cells[at - 1 : at + 6] == [
        "4242",
        "VLLM::EngineCore DP0 · m",
        "vllm-a",
        "5d1c0ffee5aa",
        "60.0 GiB",
        "5.0 GiB",
        "88 %",
    ]
    assert "GPU 0 MIG 0 1g.10gb" in cells
    assert "1.0 kWh" in cells


def test_a_real_run_has_no_badge(full_snapshot: Snapshot) -> None:
    """Only what is simulated says so."""
    assert "badge" not in render(replace(full_snapshot, simulated=False), SCREEN).split("</style>")[1]


def test_the_footer_says_what_becomes_of_a_silent_source_s_figures(full_snapshot: Snapshot) -> None:
    """The tables have none of its figures, and the footer says so."""
    failure = Failure(FailureKind.TIMEOUT, "no answer", 90.0)
    backend = replace(full_snapshot.backends[0], name="silent", running=777.0, failure=failure)
    text = render(replace(full_snapshot, backends=(backend,)), SCREEN)
    assert "silent" in Page(text).cells
    assert "777" not in Page(text).cells
    assert "The tables leave out the figures of a source that does not answer.</footer>" in text


def test_the_page_needs_nothing_else(full_snapshot: Snapshot) -> None:
    """No script, no link, no picture from elsewhere, and a policy that would not load them."""
    text = render(full_snapshot, SCREEN)
    page = Page(text)
    assert not page.tags & {"script", "link", "img", "iframe", "object", "a", "base", "form"}
    assert not {name for name, _ in page.attributes} & {"src", "href", "srcset", "style"}
    assert "default-src 'none'" in text
    assert not re.search(r"url\(|@import", text)


def test_the_page_follows_the_readers_colours(full_snapshot: Snapshot) -> None:
    """Dark and light both have their colours."""
    text = render(full_snapshot, SCREEN)
    assert "@media screen and (prefers-color-scheme: dark)" in text
    assert "color-scheme: light dark" in text


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_shown_and_does_nothing(full_snapshot: Snapshot, name: str) -> None:
    """Whatever a server calls itself is text in a cell: no tag, no attribute, no comment comes of it."""
    usual = Page(render(full_snapshot, SCREEN))
    failure = Failure(FailureKind.HTTP, name, 1.0)
    backend = replace(
        full_snapshot.backends[0],
        name=name,
        model=name,
        version=name,
        url=name,
        nodes=(name,),
        finished={name: 1.0},
    )
    dead = replace(full_snapshot.backends[1], name=name, failure=failure)
    sample = full_snapshot.nodes[0].sample
    assert sample is not None
    odd = dataclasses.replace(
        sample,
        rails=(dataclasses.replace(sample.rails[0], name=name),),
        network=(dataclasses.replace(sample.network[0], name=name, errors={name: 1.0}),),
        gpus=(dataclasses.replace(sample.gpus[0], name=name, throttle_reasons=(name,)),),
    )
    node = replace(full_snapshot.nodes[0], name=name, failure=failure, sample=odd)
    alert = replace(full_snapshot.alerts[0], subject=name, message=name)
    event = Event(full_snapshot.taken_at, Severity.INFO, name, name)
    page = Page(
        render(
            replace(full_snapshot, backends=(backend, dead), nodes=(node,), alerts=(alert,), events=(event,)),
            SCREEN,
        )
    )
    assert name in page.cells
    assert page.tags == usual.tags
    assert page.comments == []
    assert {key for key, _ in page.attributes} == {key for key, _ in usual.attributes}
    new = {value for _, value in page.attributes} - {value for _, value in usual.attributes}
    assert new <= {"word info"}


def test_nothing_watched_is_a_page_too(empty_snapshot: Snapshot) -> None:
    """A page without anything to show has no empty tables."""
    assert Page(render(empty_snapshot, SCREEN)).cells == []


def test_routers_have_their_rows() -> None:
    """A router stands with its strategy and its backends; one that is down is among what does not answer."""
    alive = Page(render(Rehearsal(router=RouterPart(strangers=1)).play(30).snapshot(), SCREEN)).cells
    at = alive.index("proxy")
    assert alive[at + 1] == "alive"
    assert alive[at + 3 : at + 6] == ["least-busy", "spark-a, spark-b", "1"]
    down = Page(render(Rehearsal(router=RouterPart(down_at_s=10)).play(60).snapshot(), SCREEN)).cells
    assert any("connection refused" in cell for cell in down)
    assert "unreachable" in down


def test_words_have_the_colours_of_the_screen(full_snapshot: Snapshot) -> None:
    """Spare capacity is blue and work green, as on the screen; each state and verdict has its rule."""
    rules = re.findall(r"(?m)^(\..*) \{ color: var\(--(\w+)\);", render(full_snapshot, SCREEN))
    colors = {selector: role for selectors, role in rules for selector in selectors.split(", ")}
    assert [colors[f".{word}"] for word in ("bored", "busy", "queueing", "oscillating", "uneven")] == [
        "info",
        "good",
        "warn",
        "bad",
        "warn",
    ]
    assert (colors[r".stuck\?"], colors[".engine.dead"], colors[".idle"]) == ("warn", "bad", "muted")
    assert len(STATE_ROLES) <= len(colors)
