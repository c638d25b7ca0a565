"""Files of sparkrun: its clusters and jobs, what of them is watched, and that no key is ever shown."""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

import sparktop.watch.listed as listed_files
from sparktop.engines import read_page
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.targets import BackendTarget, NodeTarget, Watch
from sparktop.sources.source import Reading
from sparktop.store import Store
from sparktop.watch.listed import follow_sparkrun, listed
from sparktop.watch.ways import Ways

PAGE = b'vllm:num_requests_running{engine="0",model_name="m"} 3\n'
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
    monkeypatch.delenv(listed_files.CACHE_VARIABLE, raising=False)


def home(folder: Path, jobs: Mapping[str, str], clusters: Mapping[str, str] | None = None) -> Path:
    """Write the files of sparkrun below `folder`; return it."""
    for place, files in ((listed_files.JOBS, jobs), (listed_files.CLUSTERS, clusters or {})):
        (folder / place).mkdir(parents=True)
        for name, text in files.items():
            (folder / place / name).write_text(text)
    return folder


def dated(folder: Path, ages_s: Mapping[str, float]) -> None:
    """Set how long before a fixed time each of these job files was changed."""
    for name, age_s in ages_s.items():
        os.utime(folder / listed_files.JOBS / name, (1e9 - age_s, 1e9 - age_s))


def test_jobs_are_servers_and_hosts_are_machines(tmp_path: Path) -> None:
    """The first host serves; machines are reached as the user of their cluster; the key is not shown."""
    pytest.importorskip("yaml")
    files = {"lab.yaml": CLUSTER, "other.yaml": "hosts: [spark-9]\n", ".default": "lab\n"}
    folder = home(tmp_path, {"a.yaml": JOB, "b.yaml": "hosts: [spark-7]\nmodel: m\n"}, files)
    dated(folder, {"a.yaml": 1, "b.yaml": 2})
    found = listed(folder)
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


def test_of_several_jobs_at_one_address_the_newest_counts(tmp_path: Path) -> None:
    """Its hosts, model and key are used: files of earlier jobs stay, and most use the same port."""
    pytest.importorskip("yaml")
    jobs = {
        "a.yaml": "hosts: [spark-1, spark-2]\nmodel: old\napi_key: old\nstarted_at: 100.5\n",
        "b.yaml": "hosts: [spark-1, spark-3]\nmodel: new\napi_key: new\nstarted_at: 300.5\n",
        "c.yaml": "hosts: [spark-1]\nmodel: older\nstarted_at: 200\n",
    }
    folder = home(tmp_path, jobs)
    dated(folder, {"a.yaml": 1, "b.yaml": 3, "c.yaml": 2})
    found = listed(folder)
    (one,) = found.backends
    assert (one.group, one.nodes, one.api_key) == ("new", ("spark-1", "spark-3"), "new")
    assert set(found.nodes) == {"spark-1", "spark-3"}


def test_a_host_may_name_its_user(tmp_path: Path) -> None:
    """This user comes before that of the cluster, and the server's address lacks it."""
    pytest.importorskip("yaml")
    clusters = {
        "lab.yaml": "hosts: [root@10.0.0.11, spark-2]\nuser: ops\n",
        "lab.manifest.yaml": "hosts: [spark-5]\nuser: wrong\n",
        "old.yaml": "hosts: [spark-2]\nuser: other\n",
        "z.manifest.yaml": "- no table\n",
        ".default": "lab\n",
    }
    found = listed(home(tmp_path, {"a.yaml": "hosts: [me@spark-7, spark-2, 'x@[::1]']\n"}, clusters))
    assert found.problems == ()
    assert [(one.url, one.nodes) for one in found.backends] == [
        ("http://spark-7:8000", ("spark-7", "spark-2", "::1"))
    ]
    assert {host: one.ssh for host, one in found.nodes.items()} == {
        "10.0.0.11": "root@10.0.0.11",
        "spark-2": "ops@spark-2",
        "spark-7": "me@spark-7",
        "::1": None,
    }
    (tmp_path / listed_files.CLUSTERS / ".default").write_text("lab.manifest\n")
    assert listed(tmp_path).default == ()


@pytest.mark.parametrize("place", ["~/other", "{home}/other"])
def test_jobs_are_read_where_the_environment_says(tmp_path: Path, place: str) -> None:
    """SPARKRUN_CACHE_DIR is where sparkrun writes them; empty it says nothing."""
    pytest.importorskip("yaml")
    folder = home(tmp_path, {"a.yaml": "hosts: [spark-1]\n"})
    (folder / "other/jobs").mkdir(parents=True)
    (folder / "other/jobs/b.yaml").write_text("hosts: [spark-2]\n")
    for given, host in ((place.format(home=folder), "spark-2"), ("", "spark-1")):
        found = listed(folder, {"SPARKRUN_CACHE_DIR": given})
        assert [one.nodes for one in found.backends] == [(host,)]


@pytest.mark.parametrize(
    "text",
    [
        "- a list",
        "hosts: [",
        "\x00",
        "a: &a [*a]\nhosts: *a",
        "[" * 20_000,
        "hosts: [h]\n" + "x" * (1 << 17),
        "hosts: ['-oProxyCommand=x', 'a b', 3, \"h\\e[31m\"]",
        "hosts: ['-oProxyCommand=x@h', '-l@h', 'a b@h', 'me@', '@h', 'me@-h', 'me:pw@h', 'a@b@h', '$(x)@h']",
        "hosts: ['me@h;x', 'me@h:1', 'me@http://h', \"me\\n@h\", 'me@[::1']",
        "hosts: ['-oProxyCommand=x', spark-2]",
        "hosts: [h]\nport: 99999",
        "hosts: [h]\nport: true",
        "hosts: h",
        "!!python/object/apply:os.system ['true']",
        "api_key: sk-secret\nhosts: {{",
    ],
)
def test_bad_files_are_one_line_or_nothing(tmp_path: Path, text: str) -> None:
    """They give no server, and at most a printable message that quotes nothing of the file."""
    pytest.importorskip("yaml")
    found = listed(home(tmp_path, {"a.yaml": text}))
    assert found.backends == ()
    assert all(one.isprintable() and "secret" not in one for one in found.problems)


def test_without_a_yaml_library_there_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It names what to install; where there are no jobs, nothing is said."""

    def missing(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    assert listed(tmp_path) == listed_files.Listed()
    assert listed(home(tmp_path, {"a.yaml": JOB})).problems == (listed_files.SPARKRUN_NO_YAML,)


class Polled:
    """A source that answers only where a server is alive."""

    def __init__(self, target: BackendTarget, alive: Sequence[str]) -> None:
        self.target = target
        self.alive = alive

    async def poll(self, deadline_s: float) -> Reading:
        """Return a sample, or a failure within `deadline_s`."""
        if self.target.name in self.alive:
            return read_page(PAGE, at=1.0)
        return Failure(FailureKind.REFUSED, f"nothing listens there after {deadline_s} s", 1.0)

    async def close(self) -> None:
        """Do nothing."""


async def test_only_servers_that_answer_are_watched(tmp_path: Path) -> None:
    """A crashed job's file stays: neither it nor its machines are watched; the default cluster's are."""
    pytest.importorskip("yaml")
    crashed = JOB.replace("10.0.0.11, spark-2", "spark-8").replace("8001", "8002")
    folder = home(tmp_path, {"a.yaml": JOB, "b.yaml": crashed}, {"lab.yaml": CLUSTER})
    alive = ["10.0.0.11:8001"]
    ways = cast("Ways", SimpleNamespace(backends=lambda some: [Polled(one, alive) for one in some]))
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
        await follow_sparkrun(ways, store, watch_backends, watch_nodes, cast("Any", stop), folder)
    ((one, named),) = backends
    assert (one.name, one.engine, one.nodes, one.api_key) == (
        "10.0.0.11:8001",
        "vllm",
        ("10.0.0.11", "spark-2"),
        "sk-secret",
    )
    assert set(named) == {"10.0.0.11", "spark-2"}
    assert [node.ssh for node in nodes] == ["ops@10.0.0.11", "ops@spark-2"]


class Followed:
    """A store that follows sparkrun's files; before each further reading of them a step is taken."""

    def __init__(self, folder: Path, *watched: BackendTarget) -> None:
        self.folder, self.alive = folder, ["spark-1:8000"]
        self.store = Store(Watch(backends=watched, source="test"))
        self.ssh: dict[str, str | None] = {}
        self.steps: list[Callable[[], None]] = []

    def job(self, name: str, hosts: str, model: str, started: int) -> None:
        """Write the file of a job."""
        text = f"hosts: [{hosts}]\nmodel: {model}\nssh_user: {model}\nstarted_at: {started}\n"
        (self.folder / listed_files.JOBS / name).write_text(text)

    def server(self) -> tuple[str | None, tuple[str, ...]]:
        """Return group and machines of the server."""
        (one,) = (one for one in self.store.targets() if isinstance(one, BackendTarget))
        return one.group, one.nodes

    async def run(self, *steps: Callable[[], None]) -> None:
        """Read the files, and again after each of `steps`."""
        self.steps = [*steps]
        ways = cast("Ways", SimpleNamespace(backends=lambda some: [Polled(one, self.alive) for one in some]))
        with pytest.raises(asyncio.CancelledError):
            await follow_sparkrun(ways, self.store, self._backends, self._nodes, self._sleep, self.folder)

    def _backends(self, some: Iterable[BackendTarget], named: Mapping[str, str]) -> None:
        self.store.add(*(replace(one, nodes=tuple(named[host] for host in one.nodes)) for one in some))

    async def _nodes(self, some: Iterable[NodeTarget]) -> dict[str, str]:
        self.ssh |= {one.name: one.ssh for one in some}
        return {name: name for name in self.ssh}

    async def _sleep(self, seconds: float) -> None:
        assert seconds > 0
        if not self.steps:
            raise asyncio.CancelledError
        self.steps.pop(0)()


async def test_a_newer_job_at_a_watched_address_changes_its_server(tmp_path: Path) -> None:
    """Once it answers, its machines and its group are those of the newer job, whose user ssh has."""
    pytest.importorskip("yaml")
    scene = Followed(home(tmp_path, {}))
    scene.job("a.yaml", "spark-1, spark-2", "old", 100)
    seen: list[object] = []

    def loading() -> None:
        seen.append(scene.server())
        scene.alive.clear()
        scene.job("b.yaml", "spark-1, spark-3", "new", 200)

    def answers() -> None:
        seen.append(scene.server())
        scene.alive.append("spark-1:8000")

    await scene.run(loading, answers)
    assert [*seen, scene.server()] == [
        ("old", ("spark-1", "spark-2")),
        ("old", ("spark-1", "spark-2")),
        ("new", ("spark-1", "spark-3")),
    ]
    assert scene.ssh["spark-3"] == "new@spark-3"
