"""The doctor's checks of files that list servers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparktop.doctor.check import Check, Status
from sparktop.doctor.listed import MOST, read_listed, softened
from sparktop.model.targets import Watch


async def test_listed_servers_and_unusable_files_are_named(tmp_path: Path) -> None:
    """The servers are counted, and each file that cannot be used is a warning."""
    (tmp_path / "a.json").write_text(json.dumps([{"targets": ["h:1", "h:2"]}]))
    (tmp_path / "b.json").write_text("[{")
    read = await read_listed(Watch(target_files=(str(tmp_path / "*.json"),)))
    assert [one.url for one in read.backends] == ["http://h:1", "http://h:2"]
    assert read.checks == [
        Check("target files", Status.OK, "2 servers listed"),
        Check("target files", Status.WARN, f"{tmp_path / 'b.json'}: cannot be used: not valid JSON"),
    ]


async def test_many_are_bounded(tmp_path: Path) -> None:
    """Of many listed servers only some are checked."""
    (tmp_path / "a.json").write_text(json.dumps([{"targets": [f"h:{port}" for port in range(1, 101)]}]))
    read = await read_listed(Watch(target_files=(str(tmp_path / "a.json"),)))
    assert len(read.backends) == MOST
    assert read.checks[0].message == "100 servers listed; the first 32 are checked"


async def test_jobs_and_the_default_cluster_of_sparkrun(tmp_path: Path) -> None:
    """The servers of sparkrun's jobs and the machines of its default cluster are found."""
    pytest.importorskip("yaml")
    jobs, clusters = tmp_path / ".cache/sparkrun/jobs", tmp_path / ".config/sparkrun/clusters"
    jobs.mkdir(parents=True)
    clusters.mkdir(parents=True)
    (jobs / "j.yaml").write_text("hosts: [spark-a]\nport: 8001\n")
    (clusters / "main.yaml").write_text("hosts: [spark-b]\nuser: me\n")
    (clusters / ".default").write_text("main\n")
    read = await read_listed(Watch(sparkrun=True), tmp_path)
    assert [one.url for one in read.backends] == ["http://spark-a:8001"]
    assert [one.ssh for one in read.nodes] == ["me@spark-b"]


async def test_nothing_listed_is_a_warning(tmp_path: Path) -> None:
    """If nothing is listed there is a warning; without configured files there is no check."""
    read = await read_listed(Watch(sparkrun=True), tmp_path)
    assert read.checks == [Check("sparkrun", Status.WARN, "0 servers listed")]
    assert (await read_listed(Watch())).checks == []


def test_a_listed_server_that_is_gone_is_no_failure() -> None:
    """If a listed server is gone, this is a warning only: the file may be outdated."""
    fine, gone = Check("a port", Status.OK, "answers"), Check("b port", Status.FAIL, "refused", "start it")
    assert [one.status for one in softened([fine, gone])] == [Status.OK, Status.WARN]
