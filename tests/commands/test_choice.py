"""What is watched, from arguments, the configuration file and this machine."""

from __future__ import annotations

import argparse
import socket
from pathlib import Path

import pytest

from sparktop.commands.choice import choose
from sparktop.hardware import identity
from sparktop.model.targets import Watch

FILE = """
interval_s = 2
target_files = ["servers.json"]
sparkrun = true
theme = "spark-light"
thresholds.busy_running = 3
[[nodes]]
name = "n"
[[backends]]
name = "b"
url = "http://127.0.0.1:8000"
[[routers]]
name = "only swept"
url = "http://127.0.0.1:4000"
backends = ["b"]
watched = false
"""


@pytest.fixture(autouse=True)
def own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the host name to `spark-z`, and hide all configuration files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(socket, "gethostname", lambda: "spark-z")


def chosen(
    *targets: str, config: Path | None = None, interval: float | None = None, low_bandwidth: bool = False
) -> Watch:
    arguments = argparse.Namespace(
        targets=list(targets),
        config=str(config) if config else None,
        interval=interval,
        theme=None,
        low_bandwidth=low_bandwidth,
    )
    return choose(arguments, {})


def test_without_anything_it_is_this_machine() -> None:
    """Without targets and file, this machine is watched under its host name, with its usual ports."""
    watch = chosen()
    assert [(one.name, one.via) for one in watch.nodes] == [("spark-z", "local")]
    assert watch.discover == ("127.0.0.1",)
    assert watch.source == "this machine"


def test_the_file_says_what_to_watch(tmp_path: Path) -> None:
    """Without targets, nodes and backends of the file are watched; an argument overrides its interval."""
    path = tmp_path / "x.toml"
    path.write_text(FILE, encoding="utf-8")
    watch = chosen(config=path)
    assert ([one.name for one in watch.nodes], [one.name for one in watch.backends]) == (["n"], ["b"])
    assert (watch.interval_s, watch.theme, watch.source) == (2.0, "spark-light", str(path))
    assert chosen(config=path, interval=5.0).interval_s == 5.0


def test_targets_replace_what_the_file_watches(tmp_path: Path) -> None:
    """With targets, the file gives interval, theme and thresholds, but nothing to watch."""
    path = tmp_path / "x.toml"
    path.write_text(FILE, encoding="utf-8")
    watch = chosen("host:1", config=path)
    assert [one.name for one in watch.backends] == ["host:1"]
    assert not watch.nodes
    others = (watch.routers, watch.sweep_routers, watch.discover, watch.target_files, watch.sparkrun)
    assert not any(others)
    assert (watch.interval_s, watch.theme, watch.thresholds.busy_running) == (2.0, "spark-light", 3.0)


@pytest.mark.parametrize("target", ["127.0.0.1:1", "http://[::1]:1", "SPARK-Z:1", "10.0.0.7:1"])
def test_a_local_target_brings_this_machine(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server on loopback, or under this machine's name or address in the network, adds this machine."""
    monkeypatch.setattr(identity, "read_addresses", lambda: ("10.0.0.7",))
    watch = chosen("other:1", target)
    assert [one.name for one in watch.nodes] == ["spark-z"]
    assert {one.nodes for one in watch.backends[1:]} <= {("spark-z",)}
    assert watch.backends[0].nodes == ()
