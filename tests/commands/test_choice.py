"""What is watched, from arguments, the configuration file and this machine."""

from __future__ import annotations

import argparse
import socket
from pathlib import Path

import pytest

from sparktop.commands.choice import choose, this_machine
from sparktop.errors import UsageError
from sparktop.model.targets import NodeTarget, Watch

FILE = """
interval_s = 2
theme = "spark-light"
thresholds.busy_running = 3
[[nodes]]
name = "n"
[[backends]]
name = "b"
url = "http://127.0.0.1:8000"
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


def test_low_bandwidth_and_keys_arrive(tmp_path: Path) -> None:
    """Low bandwidth comes from the option or the file, keys from the file, also with targets."""
    path = tmp_path / "x.toml"
    path.write_text(f'low_bandwidth = true\nkeys.freeze = "space"\n{FILE}', encoding="utf-8")
    assert (chosen().low_bandwidth, chosen(low_bandwidth=True).low_bandwidth) == (False, True)
    assert [chosen(*targets, config=path).low_bandwidth for targets in ((), ("host:1",))] == [True, True]
    assert chosen("host:1", config=path).keys == {"freeze": "space"}


def test_targets_replace_what_the_file_watches(tmp_path: Path) -> None:
    """With targets, the file gives interval, theme and thresholds, but nothing to watch."""
    path = tmp_path / "x.toml"
    path.write_text(FILE, encoding="utf-8")
    watch = chosen("host:1", config=path)
    assert [one.name for one in watch.backends] == ["host:1"]
    assert not watch.nodes
    assert not watch.routers
    assert not watch.discover
    assert (watch.interval_s, watch.theme, watch.thresholds.busy_running) == (2.0, "spark-light", 3.0)


def test_a_file_without_targets_means_this_machine(tmp_path: Path) -> None:
    """If the file lists nothing to watch, this machine is watched."""
    path = tmp_path / "x.toml"
    path.write_text('theme = "spark-light"\n', encoding="utf-8")
    watch = chosen(config=path)
    assert (watch.nodes, watch.discover, watch.theme) == ((this_machine(),), ("127.0.0.1",), "spark-light")


@pytest.mark.parametrize("target", ["127.0.0.1:1", "localhost:1", "http://[::1]:1", "127.5.0.1", "SPARK-Z:1"])
def test_a_local_target_brings_this_machine(target: str) -> None:
    """A server on loopback or under this machine's name adds this machine."""
    watch = chosen("other:1", target)
    assert [one.name for one in watch.nodes] == ["spark-z"]
    assert {one.nodes for one in watch.backends[1:]} <= {("spark-z",)}
    assert watch.backends[0].nodes == ()


@pytest.mark.parametrize("target", ["other:1", "other", "10.0.0.1:1", "http://127.0.0.1.example:1"])
def test_another_machine_brings_no_node(target: str) -> None:
    """A server on another machine adds no node."""
    assert chosen(target).nodes == ()


def test_hosts_are_searched_once() -> None:
    """A target without a port is a host to search, each only once."""
    watch = chosen("one", "two", "one", "three:3")
    assert watch.discover == ("one", "two")
    assert [one.name for one in watch.backends] == ["three:3"]


def test_one_server_named_twice_is_watched_once() -> None:
    """Two spellings of a URL are one backend."""
    assert len(chosen("host:1", "http://host:1/", "host:1").backends) == 1


def test_names_are_made_unique() -> None:
    """Servers with equal names get numbers."""
    assert [one.name for one in chosen("http://host:1", "https://host:1").backends] == ["host:1", "host:1-2"]


def test_a_target_that_is_none_is_refused() -> None:
    """A target that is not a host, port or URL is a usage error."""
    with pytest.raises(UsageError):
        chosen("host:99999")


def test_an_agent_as_a_target_is_a_node() -> None:
    """The address of an agent adds a machine, and servers on that machine belong to it."""
    watch = chosen("spark-a:9750", "spark-a:8000", "SPARK-A:8001", "other:1")
    assert watch.nodes == (NodeTarget("spark-a", via="agent", url="http://spark-a:9750"),)
    assert [one.nodes for one in watch.backends] == [("spark-a",), ("spark-a",), ()]


def test_an_agent_on_this_machine_takes_its_place() -> None:
    """An agent on this machine replaces the local node, so that the machine is watched once."""
    watch = chosen("127.0.0.1:9750", "localhost:1", "127.0.0.1")
    assert [(one.name, one.via) for one in watch.nodes] == [("127.0.0.1", "agent")]
    assert watch.backends[0].nodes == ("127.0.0.1",)
    assert watch.discover == ("127.0.0.1",)


def test_agents_of_one_name_are_numbered() -> None:
    """Two agents of one host are two machines; one that is named twice is one."""
    watch = chosen("http://a:9750", "https://a:9750", "a:9750", "a:1")
    assert [one.name for one in watch.nodes] == ["a", "a-2"]
    assert watch.backends[0].nodes == ("a",)
