"""The doctor's checks of files that list servers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import pytest

from sparktop.doctor.check import Check, Status
from sparktop.doctor.examination import MOST, read_listed, softened
from sparktop.doctor.network import Network
from sparktop.doctor.servers import check_backend
from sparktop.model.targets import BackendTarget, Watch
from sparktop.net.once import Reply
from sparktop.watch.listed import CACHE_VARIABLE


async def test_listed_servers_and_unusable_files_are_named(tmp_path: Path) -> None:
    """The servers are counted, and each file that cannot be used is a warning."""
    (tmp_path / "a.json").write_text(json.dumps([{"targets": ["h:1", "h:2"]}]))
    (tmp_path / "b.json").write_text("[{")
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    read = await read_listed(Watch(target_files=(str(tmp_path / "*.json"),)), sleep=sleep)
    assert waits == [2.0]  # b.json may be half written
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
    assert read.checks[0].message == "100 servers; the first 32 are checked"


async def test_what_the_files_list_beyond_the_limit_is_said(tmp_path: Path) -> None:
    """More servers than are watched are a warning with both numbers."""
    (tmp_path / "a.json").write_text(json.dumps([{"targets": [f"h:{port}" for port in range(1, 601)]}]))
    read = await read_listed(Watch(target_files=(str(tmp_path / "a.json"),)))
    assert [one.message for one in read.checks] == [
        "512 servers; the first 32 are checked",
        "600 servers listed; the first 512 are used",
    ]


async def test_jobs_and_the_default_cluster_of_sparkrun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The servers of sparkrun's jobs and the machines of its default cluster are found."""
    pytest.importorskip("yaml")
    monkeypatch.delenv(CACHE_VARIABLE, raising=False)
    jobs, clusters = tmp_path / ".cache/sparkrun/jobs", tmp_path / ".config/sparkrun/clusters"
    jobs.mkdir(parents=True)
    clusters.mkdir(parents=True)
    (jobs / "j.yaml").write_text("hosts: [spark-a]\nport: 8001\n")
    (clusters / "main.yaml").write_text("hosts: [spark-b]\nuser: me\n")
    (clusters / ".default").write_text("main\n")
    read = await read_listed(Watch(sparkrun=True), tmp_path)
    assert [one.url for one in read.backends] == ["http://spark-a:8001"]
    assert [one.ssh for one in read.nodes] == ["me@spark-b"]


async def test_nothing_listed_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If nothing is listed there is a warning; without configured files there is no check."""
    monkeypatch.delenv(CACHE_VARIABLE, raising=False)
    read = await read_listed(Watch(sparkrun=True), tmp_path)
    assert read.checks == [Check("sparkrun", Status.WARN, "0 servers listed")]
    assert (await read_listed(Watch())).checks == []


def test_a_listed_server_that_is_gone_is_no_failure() -> None:
    """If a listed server is gone, this is a warning only: the file may be outdated."""
    fine, gone = Check("a port", Status.OK, "answers"), Check("b port", Status.FAIL, "refused", "start it")
    assert [one.status for one in softened([fine, gone])] == [Status.OK, Status.WARN]


class Answering:
    """A network in which each address answers each request with the same page."""

    def __init__(self, page: bytes) -> None:
        self._page = page

    async def connect(self, place: object) -> None:
        """Accept the connection."""

    async def get(self, url: str, *, api_key: str | None = None, tls_ca: str | None = None) -> Reply:
        """Answer, whatever is asked for."""
        del url, api_key, tls_ca
        return Reply(200, body=self._page)


@pytest.mark.parametrize("page", [b"# TYPE ray_tasks gauge\nray_tasks 1\n", b"<html>", b""])
async def test_what_is_no_llm_server_is_not_called_one(page: bytes) -> None:
    """Ray lists exporters of its own: they answer, and nothing has to be done about them."""
    network = cast("Network", Answering(page))
    checks = softened(await check_backend(BackendTarget("h:1", "http://h:1"), network))
    assert {one.name: one.status for one in checks if one.name != "h:1 clock"} == {
        "h:1 port": Status.OK,
        "h:1 metrics": Status.SKIP,
    }
    (check,) = (one for one in checks if one.name == "h:1 metrics")
    assert (check.message, check.advice) == ("answers, but not as an LLM server: not watched", "")


async def test_an_llm_server_that_is_listed_is_checked_as_others_are() -> None:
    """What the checks of a vLLM server say stays."""
    page = b'vllm:num_requests_running{engine="0",model_name="m"} 3\n'
    checks = await check_backend(BackendTarget("h:1", "http://h:1"), cast("Network", Answering(page)))
    assert softened(checks) == checks
