"""Files that list servers: those of file_sd, and those of sparkrun."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sparktop.model.targets import BackendTarget, NodeTarget, Watch
from sparktop.store import Store
from sparktop.watch import listed
from sparktop.watch.listed import read_lists
from sparktop.watch.sparkrun import CACHE_VARIABLE, CLUSTERS, JOBS, Listed, follow_sparkrun, read_sparkrun
from sparktop.watch.ways import Ways
from tests.watch.monitor_fakes import Polled

UNREADABLE_VALUES = ("!!bool foo", "!!timestamp foo", '!!int ""')
"""Each makes PyYAML raise another class of error."""


def written(folder: Path, name: str, content: object) -> str:
    """Write a file; return its path."""
    (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return str(folder / name)


def test_targets_have_addresses_and_groups(tmp_path: Path) -> None:
    """Labels with __ set scheme and path, the model sets the group; in Ray's form too; no address repeats."""
    labels = {"__scheme__": "https", "__metrics_path__": "/x/metrics", "model_name": "m", "namespace": "n"}
    written(tmp_path, "a.json", [{"targets": ["h:1", "h:1", "h:2"], "labels": labels}])
    written(tmp_path, "ray.json", [{"labels": {"job": "ray"}, "targets": ["10.0.0.1:8080"]}])
    found, problems = read_lists([str(tmp_path / "*.json")])
    assert problems == []
    assert sorted((one.name, one.url, one.group) for one in found) == [
        ("10.0.0.1:8080", "http://10.0.0.1:8080", None),
        ("h:1", "https://h:1/x", "m n"),
        ("h:2", "https://h:2/x", "m n"),
    ]


def test_what_is_no_usable_file_is_named(tmp_path: Path) -> None:
    """A pipe without a writer is not waited for; a missing file is named, missing matches are not."""
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "loop.json").symlink_to("loop.json")
    written(tmp_path, "large.json", " " * (1 << 20) + "[]")
    written(tmp_path, "object.json", {"targets": []})
    patterns = [str(tmp_path / name) for name in ("*.json", "*.yml", "none.json")]
    found, problems = read_lists(patterns)
    assert found == []
    assert sorted(problem.removeprefix(f"{tmp_path}/") for problem in problems) == [
        "folder.json: cannot be used: not a regular file",
        "large.json: cannot be used: larger than 1 MiB",
        "loop.json: cannot be used: not a regular file",
        "none.json: no such file",
        "object.json: cannot be used: no list of targets, as file_sd has",
        "pipe.json: cannot be used: not a regular file",
    ]
    (tmp_path / CLUSTERS).mkdir(parents=True)
    os.mkfifo(tmp_path / CLUSTERS / ".default")
    assert read_sparkrun(tmp_path) == Listed()


@pytest.mark.parametrize(
    "content",
    [
        [
            {"targets": "h:1"},
            3,
            {"targets": [3, "", "h:x", "me:pw@h:1", "a b:1", "h:1?x", "\x1b:1", "http://h:1"]},
        ],
        [{"targets": ["h:1"], "labels": {"__scheme__": "file"}}],
        [{"targets": ["h:1"], "labels": {"__scheme__": ["http"]}}],
        "[" * 100_000,
        *(f"- {value}" for value in UNREADABLE_VALUES),
    ],
)
def test_bad_files_are_one_line_or_nothing(tmp_path: Path, content: object) -> None:
    """They give no server, and no error beyond a printable message."""
    name = "a.yml" if isinstance(content, str) and content.startswith("- !!") else "a.json"
    found, problems = read_lists([written(tmp_path, name, content)])
    assert found == []
    assert all(problem.isprintable() for problem in problems)


def test_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many servers, too large a file, a file that is gone."""
    monkeypatch.setattr(listed, "MOST_TARGETS", 3)
    path = written(tmp_path, "a.json", [{"targets": [f"h:{number}" for number in range(1, 9)]}])
    found, problems = read_lists([path])
    assert [one.name for one in found] == ["h:1", "h:2", "h:3"]
    assert problems == ["8 servers listed; the first 3 are used"]
    monkeypatch.setattr(listed, "MOST_BYTES", 10)
    assert read_lists([path])[1][0].endswith("cannot be used: larger than 0 MiB")
    assert read_lists([str(tmp_path / "gone*.json")]) == ([], [])


WAYS = cast(
    "Ways",
    SimpleNamespace(
        backends=lambda targets: [Polled(one, fails=not one.url.endswith("1")) for one in targets]
    ),
)


# Files of sparkrun: its clusters and jobs, what of them is watched, and that no key is ever shown.

CLUSTER = """\
name: lab
description: two Sparks
hosts:
- 10.0.0.11
- spark-2
user: ops
cache_dir: /data
transfer_mode: local
"""
JOB = """\
cluster_id: sparkrun_0123456789abcdef_0123456789ab
model: Qwen/Qwen3-32B
runtime: vllm
hosts: [10.0.0.11, spark-2]
port: 8001
served_model_name: qwen
tensor_parallel: 2
api_key: sk-secret
mgmt_ip_map: {10.0.0.11: 192.168.1.11}
"""


@pytest.fixture(autouse=True)
def without_another_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out of the environment where sparkrun of this user writes its jobs."""
    monkeypatch.delenv(CACHE_VARIABLE, raising=False)


def home(folder: Path, jobs: Mapping[str, str], clusters: Mapping[str, str] | None = None) -> Path:
    """Write the files of sparkrun below `folder`; return it."""
    pytest.importorskip("yaml")
    for place, files in ((JOBS, jobs), (CLUSTERS, clusters or {})):
        (folder / place).mkdir(parents=True)
        for name, text in files.items():
            (folder / place / name).write_text(text)
    return folder


def dated(folder: Path, ages_s: Mapping[str, float]) -> None:
    """Set how long before a fixed time each of these job files was changed."""
    for name, age_s in ages_s.items():
        os.utime(folder / JOBS / name, (1e9 - age_s, 1e9 - age_s))


def test_jobs_are_servers_and_hosts_are_machines(tmp_path: Path) -> None:
    """The first host serves; machines are reached as the user of their cluster; the key is not shown."""
    files = {"lab.yaml": CLUSTER, "other.yaml": "hosts: [spark-9]\n", ".default": "lab\n"}
    folder = home(tmp_path, {"a.yaml": JOB, "b.yaml": "hosts: [spark-7]\nmodel: m\n"}, files)
    dated(folder, {"a.yaml": 1, "b.yaml": 2})
    found = read_sparkrun(folder)
    assert found.problems == ()
    assert [(one.name, one.url, one.group, one.nodes) for one in found.backends] == [
        ("10.0.0.11:8001", "http://10.0.0.11:8001", "qwen", ("10.0.0.11", "spark-2")),
        ("spark-7:8000", "http://spark-7:8000", "m", ("spark-7",)),
    ]
    assert found.backends[0].api_key == "sk-secret"
    assert "sk-secret" not in repr(found)
    assert found.default == ("10.0.0.11", "spark-2")
    assert {host: one.ssh for host, one in found.nodes.items()} == {
        "10.0.0.11": "ops@10.0.0.11",
        "spark-2": "ops@spark-2",
        "spark-7": "spark-7",
    }


@pytest.mark.parametrize("place", ["~/other", "{home}/other"])
def test_jobs_are_read_where_the_environment_says(tmp_path: Path, place: str) -> None:
    """SPARKRUN_CACHE_DIR is where sparkrun writes them; empty it says nothing."""
    folder = home(tmp_path, {"a.yaml": "hosts: [spark-1]\n"})
    (folder / "other/jobs").mkdir(parents=True)
    (folder / "other/jobs/b.yaml").write_text("hosts: [spark-2]\n")
    for given, host in ((place.format(home=folder), "spark-2"), ("", "spark-1")):
        found = read_sparkrun(folder, {"SPARKRUN_CACHE_DIR": given})
        assert [one.nodes for one in found.backends] == [(host,)]


@pytest.mark.parametrize(
    "text",
    [
        "\x00",
        "a: &a [*a]\nhosts: *a",
        "[" * 20_000,
        "hosts: [h]\n# " + "x" * (1 << 17),
        "hosts: ['-oProxyCommand=x', 'a b', 3, \"h\\e[31m\"]",
        "hosts: ['-oProxyCommand=x@h', '-l@h', 'a b@h', 'me@', '@h', 'me@-h', 'me:pw@h', 'a@b@h', '$(x)@h']",
        "hosts: ['me@h;x', 'me@h:1', 'me@http://h', \"me\\n@h\", 'me@[::1']",
        "!!python/object/apply:os.system ['true']",
        "api_key: sk-secret\nhosts: {{",
        *(f"hosts: [h]\na: {value}" for value in UNREADABLE_VALUES),
    ],
)
def test_bad_files_of_jobs_are_one_line_or_nothing(tmp_path: Path, text: str) -> None:
    """They give no server, and at most a printable message that quotes nothing of the file."""
    found = read_sparkrun(home(tmp_path, {"a.yaml": text}))
    assert found.backends == ()
    assert all(one.isprintable() and "secret" not in one for one in found.problems)


async def test_only_servers_that_answer_are_watched(tmp_path: Path) -> None:
    """A crashed job's file stays: neither it nor its machines are watched; the default cluster's are."""
    crashed = JOB.replace("10.0.0.11, spark-2", "spark-8").replace("8001", "8002")
    folder = home(tmp_path, {"a.yaml": JOB, "b.yaml": crashed}, {"lab.yaml": CLUSTER})
    store = Store(Watch(source="test"))
    backends: list[tuple[BackendTarget, Mapping[str, str]]] = []
    nodes: list[NodeTarget] = []

    def watch_backends(some: Iterable[BackendTarget], named: Mapping[str, str]) -> None:
        backends.extend((one, named) for one in some)

    async def watch_nodes(some: Iterable[NodeTarget]) -> dict[str, str]:
        nodes.extend(some)
        return {one.name: one.name for one in nodes}

    async def stop(seconds: float) -> None:
        raise asyncio.CancelledError(seconds)

    with pytest.raises(asyncio.CancelledError):
        await follow_sparkrun(WAYS, store, watch_backends, watch_nodes, cast("Any", stop), folder)
    ((one, named),) = backends
    assert (one.name, one.engine, one.nodes, one.api_key) == (
        "10.0.0.11:8001",
        "vllm",
        ("10.0.0.11", "spark-2"),
        "sk-secret",
    )
    assert set(named) == {"10.0.0.11", "spark-2"}
    assert [node.ssh for node in nodes] == ["ops@10.0.0.11", "ops@spark-2"]
