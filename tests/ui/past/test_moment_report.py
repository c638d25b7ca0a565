"""F2: a report of the minutes up to the moment on the screen, of the present, the past and a recording."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from sparktop.recording.player import Recording
from sparktop.recording.replay import Replay
from sparktop.ui.app import ReplayApp, SparktopApp
from stage.rehearsal import Rehearsal
from tests.moments.conftest import Recorded, recorded

pytestmark = [pytest.mark.outside, pytest.mark.long]
__all__ = ["recorded"]


async def saved(app: SparktopApp, *keys: str, filled: bool = True) -> str:
    """Press keys and F2; return the last notice.

    A recording is played first until the whole moment is on the screen, or only its first picture.
    """
    async with app.run_test(size=(80, 24)) as pilot:
        if isinstance(app, ReplayApp):
            first = app.replay.picture()
            for _ in range(2_000):
                app.replay.work(0.1)
                if not app.replay.busy or (app.replay.picture() is not first and not filled):
                    break
            app._redraw()
        await pilot.press(*keys, "f2")
        await app.workers.wait_for_complete([one for one in app.workers if one.group == "report"])
        await pilot.pause()
        return [notice.message for notice in app._notifications][-1]


def written(folder: Path) -> dict[str, str]:
    """Return the texts of the files of a report, by suffix."""
    return {path.suffix: path.read_text(encoding="utf-8") for path in folder.glob("sparktop-*")}


@pytest.mark.parametrize(("keys", "last"), [((), 30), (("left_square_bracket",), 20)])
async def test_the_board_saves_the_minutes_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: tuple[str, ...], last: int
) -> None:
    """HTML, Markdown, and the snapshot on the screen as JSON, all of one moment; nothing later is in them."""
    monkeypatch.chdir(tmp_path)
    live = Rehearsal(nodes=1)
    app = SparktopApp(live.store.snapshot, store=live.store)
    for _ in range(30):
        live.play(1.0)
        app.rewind.add(live.store.snapshot(), lambda: None)
    monkeypatch.setenv("HOME", str(tmp_path.parent))
    said = await saved(app, *keys)
    assert re.fullmatch(rf"saved sparktop-[\d-]+\.html, \.md and \.json in ~/{tmp_path.name}", said)
    texts = written(tmp_path)
    assert set(texts) == {".html", ".md", ".json"}
    assert f"09:00:01 to 09:00:{last} UTC" in texts[".md"]
    assert "192.168.100" not in texts[".md"] + texts[".html"]
    assert json.loads(texts[".json"])["taken_at"].startswith(f"2026-01-15T09:00:{last}")


@pytest.mark.parametrize("filled", [True, False])
async def test_a_recording_on_the_screen_is_reported(
    recorded: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, filled: bool
) -> None:
    """The moment shown and all minutes before it, also while a jump is still being filled."""
    monkeypatch.chdir(tmp_path)
    app = ReplayApp(Replay(Recording([recorded.path])))
    assert (await saved(app, filled=filled)).endswith(f".md and .json in {tmp_path}")
    text = written(tmp_path)[".md"]
    assert "09:00:01 to 09:02:40 UTC" in text
    assert "`proxy`: **oscillating**, 09:00:50 to" in text
    assert "No readings" not in text
