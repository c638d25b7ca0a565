"""The panel of a router, and where it stands."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sparktop.model.event import Severity
from sparktop.model.router import RouterSample, RouterView
from sparktop.model.snapshot import Snapshot
from sparktop.panels.server.router import router_panel
from stage.rehearsal import START, Outage, Rehearsal, RouterPart
from tests.panels.drawn import fitted, text_of, texts

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def routed() -> Snapshot:
    return Rehearsal(router=RouterPart(unwatched=1)).play(60).snapshot()


ALIVE = RouterSample(0.0, "litellm", alive=True)


def panel(view: RouterView, width: int = 118, height: int = 3) -> list[str]:
    return texts(router_panel(view, width, height))


def router() -> RouterView:
    names = ("spark-a", "spark-b")
    view = RouterView("proxy", "http://p:4000", age_s=1.0, sample=ALIVE, backends=names)
    return replace(view, running={"spark-a": 3.0, "spark-b": 9.0})


def test_it_tells_who_it_is_and_where_it_sends(routed: Snapshot) -> None:
    """The panel has name, kind, version, strategy, state and since when, deployments and what is unmapped."""
    top, share, edge = panel(routed.routers[0])
    assert "proxy" in top
    assert "least-busy litellm 1.106.2 " in top
    assert "(config)" not in top
    assert "┐alive┌" in top
    assert f" since {(START + timedelta(seconds=1)).astimezone():%H:%M:%S} " in top
    assert "■ spark-a" in share
    assert "▬ spark-b" in share
    assert "1 ✖ unmapped" in share
    assert "://" not in edge
    alone = panel(routed.routers[0], height=20)
    assert any("spark-1" in row and "→ spark-a" in row for row in alone)
    assert "http://192.168.100.11:4000" in alone[-1]


def test_nothing_running_and_nothing_known_differ() -> None:
    """An idle group has an empty bar and zeros; one whose counts are not all known has no shares."""
    idle = panel(replace(router(), running={"spark-a": 0.0, "spark-b": 0.0}))[1]
    dumb = panel(replace(router(), running={"spark-a": None, "spark-b": None}))[1]
    assert ("····" in idle, "0" in idle) == (True, True)
    assert ("––––" in dumb, "0" in dumb) == (True, False)
    partly = panel(replace(router(), running={"spark-a": None, "spark-b": 32.0}))[1]
    assert "■ spark-a – – ▬ spark-b 32 – " in " ".join(partly.split())


def test_a_router_that_is_down_says_since_when_and_why() -> None:
    """Its last answer is drawn stale; the shares come from the backends and keep their colours."""
    snapshot = Rehearsal(router=RouterPart(down_at_s=40), outage=Outage(1, 40)).play(60).snapshot()
    rows = router_panel(snapshot.routers[0], 118, 12)
    text = text_of(rows)
    assert "┐unreachable┌" in text
    assert " since 09:00:41 " in text
    assert "connection refused" in text
    assert "last answer" in text
    assert any(role == "stale" and "spark-1" in words for row in rows[2:] for words, role in row)
    assert not any(role == "stale" for _, role in rows[1])
    assert "▬ spark-b   –" in text


def printable(text: str) -> str:
    return "".join(filter(str.isprintable, text))


@given(
    st.integers(60, 200),
    st.integers(3, 12),
    st.lists(st.tuples(st.text(max_size=30), st.none() | st.floats(0, 1e6)), max_size=60),
    st.dictionaries(st.text(max_size=90), st.none() | st.text(min_size=1, max_size=30), max_size=30),
    st.none() | st.text(max_size=200),
)
def test_any_router_fits_its_panel(
    width: int,
    height: int,
    loads: list[tuple[str, float | None]],
    deployments: dict[str, str | None],
    words: str | None,
) -> None:
    """However many backends and deployments, and whatever they are called, the panel keeps its shape."""
    running = {printable(name): load for name, load in loads}
    view = replace(
        router(),
        sample=replace(ALIVE, note=printable(words or "")),
        strategy=words and "x" * len(words),
        backends=tuple(running),
        running=running,
        deployments={printable(name): to for name, to in deployments.items()},
    )
    fitted(router_panel(view, width, height), width, height)


@pytest.mark.parametrize(("width", "height"), [(80, 3), (120, 12)])
def test_a_deployment_that_fails_is_marked(width: int, height: int) -> None:
    """At 80 columns too its outage, failures and cooldowns stand in the panel."""
    words = "outage, 58 failed answers within 60 s, in cooldown 3 times"
    deployments = {"spark-1": "spark-a", "spark-2": "spark-b"}
    view = replace(router(), deployments=deployments, deployment_troubles={"spark-2": words})
    text = text_of(router_panel(view, width, height))
    assert f"spark-2: {words}" in text
    assert height == 3 or "▲" in text
    remark = replace(view, trouble_severity=Severity.INFO)
    assert "▲" not in text_of(router_panel(remark, width, height))
