"""Experiments with wall clocks that are set during a recording, and with machines that restart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from broken.shared import Row, records, rehearsed

from sparktop.recording.frames import FrameWriter, encode
from sparktop.recording.player import Player, Recording
from sparktop.report.json_snapshot import to_json

HOUR_S = 3_600.0


def figures(player: Player) -> Any:  # noqa: ANN401 - any JSON
    """Return all figures of the backends at the player's current moment."""
    return without_uptime(to_json(player.snapshot())["backends"])


def without_uptime(backends: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - any JSON
    """Return figures of backends without those that depend on the wall clock."""
    return [{name: value for name, value in one.items() if name != "uptime_s"} for one in backends]


def steps(folder: Path, *, short: bool) -> Iterator[Row]:
    """Record with a wall clock that is set forward or back, and with a second boot; play and seek the end."""
    seconds = 130.0 if short else 300.0
    for name, step_s in (("forward", HOUR_S), ("back", -HOUR_S)):
        path = folder / f"{name}.rec.zst"
        live = rehearsed(path, seconds, step_s=step_s)
        recording = Recording([path])
        player = Player(recording)
        player.play(recording.end)
        played = figures(player) == without_uptime(to_json(live.store.snapshot())["backends"])
        late = Player(recording)
        late.seek(recording.end)
        sought = figures(late) == figures(player)
        walls = [one.instant.wall for one in recording.records(recording.frames[0])]
        order = walls == sorted(walls)
        whole = len(walls) == len(records(path))
        yield Row(
            f"wall clock set {name} by an hour in the middle",
            1,
            "all is played, in order, to the live figures; the end can be sought",
            f"{'all' if whole else 'not all'}, {'in order' if order else 'not in order'}, "
            f"figures {'equal' if played else 'differ'}, sought {'equal' if sought else 'differ'}",
            played and sought and order and whole,
        )
    first, second = folder / "first", folder / "second"
    rehearsed(first, 70.0)
    live = rehearsed(second, 70.0)
    frame = FrameWriter(3)
    moved = b"".join(encode(one) for one in records(second))
    (both := folder / "both").write_bytes(
        first.read_bytes() + frame.add(moved.replace(b'"boot_id":"', b'"boot_id":"x')) + frame.end()
    )
    player = Player(Recording([both]))
    player.play(player.recording.end)
    equal = player.unreadable == 0
    yield Row("monotonic clock begins again", 1, "played", f"{player.unreadable} records not used", equal)
