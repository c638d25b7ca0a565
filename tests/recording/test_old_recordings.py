"""Recordings of every released version: each opens for ever, and shows the figures that it showed then."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sparktop.cli import main
from sparktop.recording.player import Player, Recording
from sparktop.recording.replay import Replay
from sparktop.recording.rescue import check
from sparktop.report.json_snapshot import to_json

FOLDER = Path(__file__).parent.parent / "data" / "recordings"
FILES = sorted(FOLDER.rglob("*.rec.zst"))
FIGURES = {
    "backends": (
        *("name", "engine", "engine_version", "ok", "model", "nodes", "running", "waiting"),
        *("kv_cache_percent", "prompt_tps", "generation_tps", "requests_per_s", "uptime_s", "counters"),
    ),
    "nodes": ("name", "ok", "product", "driver"),
    "memory": ("total_bytes", "used_bytes", "available_bytes", "headroom_bytes", "page_cache_bytes"),
    "gpu": ("name", "utilization_percent", "temperature_c", "power_w", "sm_clock_mhz"),
    "routers": ("name", "ok", "kind", "strategy", "backends", "deployments"),
}
"""Figures that were read or computed; verdicts and words may change with a version."""
EVERY_S = 4


def figures(picture: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of a snapshot's JSON that every later version must show alike."""

    def chosen(kind: str, value: dict[str, Any]) -> dict[str, Any]:
        return {name: value[name] for name in FIGURES[kind]}

    return {
        "backends": [chosen("backends", one) for one in picture["backends"]],
        "nodes": [
            {
                **chosen("nodes", one),
                "memory": chosen("memory", one["memory"]),
                "gpus": [chosen("gpu", gpu) for gpu in one["gpus"]],
            }
            for one in picture["nodes"]
        ],
        "routers": [chosen("routers", one) for one in picture["routers"]],
        "interval_s": picture["interval_s"],
        "simulated": picture["simulated"],
    }


def shown(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (time, figures) of every fourth second of a recording, and of its end."""
    recording = Recording([path])
    player = Player(recording)
    moment = recording.frames[0].instant.wall
    while moment < recording.end:
        moment = min(moment + timedelta(seconds=EVERY_S), recording.end)
        player.play(moment)
        yield moment.isoformat(), figures(to_json(player.snapshot()))
    assert player.unreadable == 0


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_recording_shows_the_figures_that_it_showed(path: Path) -> None:
    """Played from the beginning, each moment has the figures that were stored beside the recording."""
    expected = json.loads(path.with_name("expected.json").read_text(encoding="utf-8"))[path.name]
    assert dict(shown(path)) == expected


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_every_reader_opens_it(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The screen's replay, the check, both dumps, the snapshot and the page of a moment can read it."""
    assert check(path).is_whole
    assert check(path).end == "quit"
    replay = Replay(Recording([path]))
    while replay.busy:
        replay.work(1.0)
    assert replay.snapshot().backends[1].name == "spark-b"
    pages = [["report", "--at", "start", "--format", form] for form in ("md", "html", "json")]
    dumps = [["dump"], ["dump", "--format", "openmetrics"], ["snapshot", "--format", "json", "--from"]]
    for words in (*dumps, *pages):
        assert main([*words, str(path)]) == 0
        assert "spark-b" in capsys.readouterr().out


def test_what_was_done_then_is_still_known() -> None:
    """A mark, a note, a target that came later, and one that was removed."""
    recording = Recording([FOLDER / "0.3.0" / "changes.rec.zst"])
    player = Player(recording)
    player.play(recording.end)
    snapshot = player.snapshot()
    assert [word for _, word in player.marks] == ["look here"]
    assert [one.name for one in snapshot.backends] == ["spark-a", "spark-b", "late"]
    assert [event.message for event in snapshot.events if event.subject == "discovery"] == ["a note"]
    assert snapshot.backends[0].failure is not None
    assert isinstance(snapshot.taken_at, datetime)
