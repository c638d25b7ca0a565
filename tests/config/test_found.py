"""Writing a configuration file from what was found."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from sparktop.commands.config import write_found
from sparktop.config.found import found_toml
from sparktop.config.schema import check
from sparktop.errors import ConfigError, UsageError
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import NodeIdentity
from sparktop.model.router import Deployment, RouterView
from sparktop.model.snapshot import BackendView, NodeView, Snapshot
from sparktop.model.targets import BackendTarget, NodeTarget, RouterTarget, Watch

LOCKED = Failure(FailureKind.UNAUTHORIZED, "HTTP 401\x1b[2J", 1.0)
NODES = (
    NodeTarget("here"),
    NodeTarget("spark-b", via="agent", url="http://10.0.0.2:9750"),
    NodeTarget("spark-c", via="ssh", ssh="me@spark-c"),
)
BACKENDS = (
    BackendTarget("a", "http://127.0.0.1:8000"),
    BackendTarget('b "quoted" \\', "http://10.0.0.2:8000"),
    BackendTarget("far", "http://10.0.0.9:8000", slots=16),
)
ROUTERS = (RouterTarget("proxy", "http://127.0.0.1:4000"), RouterTarget("closed", "http://127.0.0.1:4001"))
SNAPSHOT = Snapshot(
    datetime(2026, 3, 4, tzinfo=UTC),
    1.0,
    1.0,
    2.0,
    nodes=(
        NodeView("here", "local", identity=NodeIdentity(os="DGX OS 7")),
        NodeView("spark-b", "agent"),
        NodeView("spark-c", "ssh"),
    ),
    backends=(
        BackendView(
            "a",
            BACKENDS[0].url,
            "",
            engine="vllm",
            version="0.32.0",
            model="m\nurl = 1",
            nodes=("here",),
            slots=8,
        ),
        BackendView(BACKENDS[1].name, BACKENDS[1].url, "", nodes=("spark-b",)),
        BackendView("far", BACKENDS[2].url, "", failure=LOCKED),
    ),
    routers=(
        RouterView(
            "proxy",
            ROUTERS[0].url,
            kind="litellm",
            strategy="least-busy",
            strategy_read=True,
            deployments={"one": "a", "two": BACKENDS[1].name, "three": None},
            told=(
                Deployment("one", "http://127.0.0.1:8000/v1"),
                Deployment("three", "https://example.org/v1\n[[nodes]]"),
            ),
        ),
        RouterView("closed", ROUTERS[1].url, failure=LOCKED),
    ),
)


def test_what_was_found_comes_back_from_the_file() -> None:
    """Nodes, servers with their nodes, and routers with their deployments are read back as they were."""
    text = found_toml((*NODES, *BACKENDS, *ROUTERS), SNAPSHOT)
    watch = check(Path("x.toml"), text).watch({})
    assert watch.nodes == NODES
    assert [(one.name, one.url, one.engine, one.nodes, one.slots) for one in watch.backends] == [
        ("a", "http://127.0.0.1:8000", "vllm", ("here",), None),
        (BACKENDS[1].name, "http://10.0.0.2:8000", "auto", ("spark-b",), None),
        ("far", "http://10.0.0.9:8000", "auto", (), 16),
    ]
    assert [(one.name, one.backends, dict(one.deployments)) for one in watch.routers] == [
        ("proxy", ("a", BACKENDS[1].name), {"one": "a", "two": BACKENDS[1].name}),
        ("closed", (), {}),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "# DGX OS 7",
        "# vllm 0.32.0, m url = 1",
        "# It did not answer: HTTP 401 [2J",
        "# The machine 10.0.0.9 is not watched. Over ssh nothing has to be installed there.",
        '#ssh = "10.0.0.9"',
        "# Not watched: https://example.org/v1 [[nodes]]",
    ],
)
def test_comments_say_what_is_known_and_what_to_fill_in(line: str) -> None:
    """Comments have known facts and settings to fill in; text from servers is cleaned."""
    assert line in found_toml((*NODES, *BACKENDS, *ROUTERS), SNAPSHOT).splitlines()


def test_slots_that_nobody_reports_are_not_guessed() -> None:
    """Unknown slots are written as "?", which is invalid if uncommented: a guess would pass for a fact."""
    view = BackendView("a", BACKENDS[0].url, "", engine="vllm")
    text = found_toml(BACKENDS[:1], replace(SNAPSHOT, backends=(view,)))
    assert "#slots = ?" in text.splitlines()
    with pytest.raises(ConfigError, match=r"^x.toml"):
        check(Path("x.toml"), text.replace("#slots", "slots"))


def test_a_file_is_not_overwritten_and_needs_a_name(tmp_path: Path) -> None:
    """An existing file and a missing name are refused before anything is watched."""
    path = tmp_path / "mine.toml"
    path.write_text("", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"mine.toml exists: edit or remove it, or name another file \("):
        write_found(Watch(), str(path), 0.1)
    with pytest.raises(UsageError, match=r"takes FILE.toml, not '10.0.0.1:8000': TARGETs stand before it$"):
        write_found(Watch(), "10.0.0.1:8000", 0.1)
