"""Files of the file_sd format: what is read of them, and which of their servers are watched."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry, Gauge, start_http_server

from sparktop.engines import read_page
from sparktop.model.engine import EngineSample
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.targets import BackendTarget
from sparktop.sources.engine_http import EngineSource
from sparktop.sources.source import Reading
from sparktop.watch import listed
from sparktop.watch.listed import TargetFiles, listed_targets
from sparktop.watch.ways import Ways

PAGE = b'vllm:num_requests_running{engine="0",model_name="m"} 3\n'


def written(folder: Path, name: str, content: object) -> str:
    """Write a file; return its path."""
    (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return str(folder / name)


def test_targets_have_addresses_and_groups(tmp_path: Path) -> None:
    """Labels with __ set scheme and path, the model sets the group; in Ray's form too; no address repeats."""
    labels = {"__scheme__": "https", "__metrics_path__": "/x/metrics", "model_name": "m", "namespace": "n"}
    written(tmp_path, "a.json", [{"targets": ["h:1", "h:1", "h:2"], "labels": labels}])
    written(tmp_path, "ray.json", [{"labels": {"job": "ray"}, "targets": ["10.0.0.1:8080"]}])
    found, problems = listed_targets([str(tmp_path / "*.json")])
    assert problems == []
    assert sorted((one.name, one.url, one.group) for one in found) == [
        ("10.0.0.1:8080", "http://10.0.0.1:8080", None),
        ("h:1", "https://h:1/x", "m n"),
        ("h:2", "https://h:2/x", "m n"),
    ]


def test_yaml_is_read_by_its_suffix(tmp_path: Path) -> None:
    """As in file_sd; what is not YAML is one line."""
    written(tmp_path, "a.yml", "- targets: ['h:1']\n  labels: {model_name: m}\n")
    written(tmp_path, "b.yaml", "a: [b")
    found, problems = listed_targets([str(tmp_path / "*.y*ml")])
    assert [(one.url, one.group) for one in found] == [("http://h:1", "m")]
    assert problems == [f"{tmp_path / 'b.yaml'}: cannot be used: not valid YAML"]


def test_what_is_no_usable_file_is_named(tmp_path: Path) -> None:
    """A pipe without a writer is not waited for; a missing file is named, missing matches are not."""
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "loop.json").symlink_to("loop.json")
    written(tmp_path, "large.json", " " * (1 << 20) + "[]")
    written(tmp_path, "object.json", {"targets": []})
    patterns = [str(tmp_path / name) for name in ("*.json", "*.yml", "none.json")]
    found, problems = listed_targets(patterns)
    assert found == []
    assert sorted(problem.removeprefix(f"{tmp_path}/") for problem in problems) == [
        "folder.json: cannot be used: not a regular file",
        "large.json: cannot be used: larger than 1 MiB",
        "loop.json: cannot be used: not a regular file",
        "none.json: no such file",
        "object.json: cannot be used: no list of targets, as file_sd has",
        "pipe.json: cannot be used: not a regular file",
    ]


@pytest.mark.parametrize(
    "content",
    [
        "no json",
        {"targets": ["h:1"]},
        [
            {"targets": "h:1"},
            3,
            {"targets": [3, "", "h:x", "me:pw@h:1", "a b:1", "h:1?x", "\x1b:1", "http://h:1"]},
        ],
        [{"targets": ["h:1"], "labels": {"__scheme__": "file"}}],
        "[" * 100_000,
    ],
)
def test_bad_files_are_one_line_or_nothing(tmp_path: Path, content: object) -> None:
    """They give no server, and no error beyond a printable message."""
    found, problems = listed_targets([written(tmp_path, "a.json", content)])
    assert found == []
    assert all(problem.isprintable() for problem in problems)


def test_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many servers, too large a file, a file that is gone."""
    monkeypatch.setattr(listed, "MOST_TARGETS", 3)
    path = written(tmp_path, "a.json", [{"targets": [f"h:{number}" for number in range(1, 9)]}])
    found, problems = listed_targets([path])
    assert [one.name for one in found] == ["h:1", "h:2", "h:3"]
    assert problems == ["8 servers listed; the first 3 are used"]
    monkeypatch.setattr(listed, "MOST_BYTES", 10)
    assert listed_targets([path])[1][0].endswith("cannot be used: larger than 0 MiB")
    assert listed_targets([str(tmp_path / "gone*.json")]) == ([], [])


class Polled:
    """A server that answers as vLLM if its port is 1, else not at all."""

    def __init__(self, target: BackendTarget) -> None:
        self.name, self._url = target.name, target.url

    async def poll(self, deadline_s: float) -> Reading:
        """Answer."""
        at = asyncio.get_running_loop().time() + deadline_s
        answers = self._url.endswith(":1")
        return read_page(PAGE, at=at) if answers else Failure(FailureKind.REFUSED, "nothing there", at)

    async def close(self) -> None:
        """End."""


async def test_only_new_servers_that_answer_are_watched(tmp_path: Path) -> None:
    """Configured servers are skipped; a server that does not answer is tried again the next time."""
    path = written(tmp_path, "a.json", [{"targets": ["a:1", "b:1", "c:2"]}])
    watched: list[BackendTarget] = []
    notes: list[str] = []

    def sources(targets: Sequence[BackendTarget]) -> list[Any]:
        return [Polled(target) for target in targets]

    ways = cast("Ways", SimpleNamespace(backends=sources))
    files = TargetFiles([path], ways, lambda: ["http://a:1"], watched.extend, notes.append)
    await files.look()
    assert [(one.name, one.engine) for one in watched] == [("b:1", "vllm")]
    written(tmp_path, "a.json", [])
    await files.look()
    assert notes == [f"no servers in {path}"]


@pytest.mark.parametrize("half", ["", '[{"targets": ["b:'])
async def test_a_half_written_file_is_read_again(tmp_path: Path, half: str) -> None:
    """After 2 s, once: what is whole then is watched without a message, and what is not is named."""
    path = written(tmp_path, "a.json", half)
    other = written(tmp_path, "b.json", [{"targets": ["c:1"]}])
    waits: list[float] = []
    watched: list[BackendTarget] = []
    notes: list[str] = []
    ways = cast("Ways", SimpleNamespace(backends=lambda targets: [Polled(target) for target in targets]))
    rewritten = [[{"targets": ["b:1"]}], half]

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        written(tmp_path, "a.json", rewritten.pop(0))

    files = TargetFiles([path, other], ways, list, watched.extend, notes.append, sleep)
    await files.look()
    assert ([one.name for one in watched], notes, waits) == (["b:1", "c:1"], [], [2.0])
    written(tmp_path, "a.json", half)
    await files.look()
    assert (notes, waits) == ([f"{path}: cannot be used: not valid JSON"], [2.0, 2.0])


@pytest.mark.outside
async def test_exporters_alone_are_no_servers(tmp_path: Path) -> None:
    """Ray lists them; they send their page on any route, and "alive" in it is not taken for LiteLLM."""
    registry = CollectorRegistry()
    Gauge("ray_checks_alive", "whether nodes are alive", registry=registry).set(1)
    exporter, thread = start_http_server(0, "127.0.0.1", registry)
    address = f"127.0.0.1:{exporter.server_port}"
    path = written(tmp_path, "ray.json", [{"labels": {"job": "ray"}, "targets": [address]}])
    failures: list[Reading] = []
    notes: list[str] = []

    class Probe(EngineSource):
        """Keeps what it returns."""

        async def poll(self, deadline_s: float) -> EngineSample | Failure:
            reading = await super().poll(deadline_s)
            failures.append(reading)
            return reading

    ways = cast("Ways", SimpleNamespace(backends=lambda targets: [Probe(one) for one in targets]))
    try:
        await TargetFiles([path], ways, list, lambda _: None, notes.append).look()
    finally:
        exporter.shutdown()
        exporter.server_close()
        thread.join(5)
    assert [one.kind for one in failures if isinstance(one, Failure)] == [FailureKind.OTHER_PROGRAM]
    assert notes == [f"{path}: no inference server answers there (addresses listed: 1)"]
