"""The keys that record and mark."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from textual.widgets import Input

from sparktop.model.targets import NodeTarget, Watch
from sparktop.recording.player import Player, Recording
from sparktop.recording.session import RecordedMonitor, Recordings
from sparktop.store import Store
from sparktop.ui.app import SparktopApp

pytestmark = pytest.mark.outside


async def test_r_records_into_this_folder_and_m_marks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The header says so meanwhile; the file holds what was read and the mark, and ends with its reason."""
    monkeypatch.chdir(tmp_path)
    watch = Watch(nodes=(NodeTarget("here"),))
    recordings = Recordings(watch, flight=True, env={"XDG_STATE_HOME": str(tmp_path)})
    store = Store(watch, journal=recordings.journal)
    app = SparktopApp(
        store.snapshot, monitor=RecordedMonitor(watch, store, recordings), store=store, watch=watch
    )
    app.recordings = recordings
    async with app.run_test(size=(80, 24)) as pilot:
        async with asyncio.timeout(300):
            while not store.snapshot().nodes[0].ok:
                await pilot.pause(0.05)
        await pilot.press("r")
        notices = [recordings.notice]
        await pilot.press("M")
        app.screen.query_one(Input).value = "here it hangs\x1b[31m"
        await pilot.press("enter")
        async with asyncio.timeout(300):
            while len([*store.snapshot().nodes[0].history.cpu_percent]) < 2:
                await pilot.pause(0.05)
        await pilot.press("r")
        notices.append(recordings.notice)
    assert notices == ["recording", None]
    own, flight = sorted(tmp_path.rglob("*.rec.zst"), key=lambda path: path.parent != tmp_path)  # noqa: ASYNC240 - the app is closed
    for path, reason in ((own, "stopped"), (flight, "quit")):
        recording = Recording([path])
        assert [*recording.records(recording.frames[-1])][-1].fields == {"reason": reason}
        player = Player(recording)
        player.play(recording.frames[-1].instant.wall.replace(year=2100))
        # The newest reading may have failed: a busy machine is not read in time.
        assert any(percent is not None for percent in player.snapshot().nodes[0].history.cpu_percent)
        assert [word for _, word in player.marks] == ["here it hangs [31m"]
