"""Incidents: the minutes around chosen alerts, saved as recordings of their own."""

from __future__ import annotations

import errno
import threading
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest

from sparktop.model.event import Event, Phase, Severity
from sparktop.model.instant import Instant
from sparktop.model.targets import INCIDENTS
from sparktop.recording import flight as module
from sparktop.recording import recorder as recording_file
from sparktop.recording.flight import MOST_COPIES, Incidents, frames_since
from sparktop.recording.frames import FrameWriter, Record, RecordKind, encode
from sparktop.recording.player import Player, Recording
from sparktop.recording.recorder import Recorder
from sparktop.recording.rescue import check
from sparktop.store.store import Journals
from stage.rehearsal import Outage, Rehearsal
from tests.recording.conftest import Made, instant

pytestmark = [pytest.mark.outside, pytest.mark.long]

DOWN_AT_S, BEFORE_S, AFTER_S = 160.0, 80.0, 30.0
"""Shorter than in use, because the rehearsal of a quarter of an hour takes long."""
WAIT_S = 100.0


@dataclass
class Saving:
    """Incidents saved in a folder, and what they reported."""

    folder: Path
    lines: list[tuple[str, Severity]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Create incidents for the default alerts."""
        self.incidents = Incidents(self.folder, INCIDENTS, lambda *line: self.lines.append(line))

    @property
    def copies(self) -> list[Path]:
        """The saved files, oldest first."""
        return sorted(self.folder.glob("*.rec.zst"))

    @property
    def names(self) -> list[str]:
        """What the names of the saved files have after the time."""
        return [path.name.partition("-")[2].removesuffix(".rec.zst") for path in self.copies]

    def begin(self, at: float, about: str, phase: Phase = Phase.BEGIN) -> None:
        """Tell of an alert that begins or ends."""
        subject = about.split(":")[1]
        event = Event(instant(at).wall, Severity.CRITICAL, subject, "down", at_s=at, about=about, phase=phase)
        self.incidents.on_event(event)

    def alert(self, at: float, subject: str = "spark-a", kind: str = "unreachable") -> None:
        """Begin an alert, pass two minutes and wait until the copy is written."""
        self.begin(at, f"backend:{subject}:{kind}")
        self.incidents.on_written(instant(at))
        self.incidents.on_written(instant(at + module.AFTER_S))
        self.incidents.finish()


@pytest.fixture
def saving(tmp_path: Path, made: Made) -> Saving:
    """Incidents of a recorder that has one file and began long before the first alert."""
    source = tmp_path / "flight.rec.zst"
    source.write_bytes(made.data)
    found = Saving(tmp_path / "incidents")
    found.incidents.on_part(source)
    found.incidents.on_written(instant(-1000.0))
    return found


def test_the_saved_file_shows_the_minutes_before_and_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copied by a thread from two files while they are written; the replayed pictures hold the alert."""
    monkeypatch.setattr("sparktop.recording.recorder.FLUSH_S", 0.01)
    monkeypatch.setattr(module, "BEFORE_S", BEFORE_S)
    monkeypatch.setattr(module, "AFTER_S", AFTER_S)
    saving, written_to = Saving(tmp_path / "incidents"), 0.0
    changed = threading.Condition()

    def written(when: Instant) -> None:
        nonlocal written_to
        saving.incidents.on_written(when)
        with changed:
            written_to = when.at
            changed.notify()

    journal = Journals()
    live = Rehearsal(backends=1, nodes=0, journal=journal, outage=Outage(0, DOWN_AT_S))
    recorder = Recorder(
        live.watch,
        next_path=lambda when: tmp_path / f"{when.at:06.0f}.rec.zst",
        part_s=120.0,
        on_part=saving.incidents.on_part,
        on_written=written,
    )
    journal.add(recorder)
    recorder.start(live.store)
    live.store.listen_events(saving.incidents.on_event)
    for _ in range(11):
        live.play(20.0)
        with changed:
            assert changed.wait_for(lambda: written_to >= live.now_s - 1.0, WAIT_S)
    recorder.stop("quit")
    saving.incidents.finish()
    (path,) = saving.copies
    assert path.name == "20260115T090242Z-spark-a-unreachable.rec.zst"
    assert saving.lines == [(f"incident saved: spark-a unreachable: sparktop replay {path}", Severity.INFO)]
    assert (path.stat().st_mode & 0o777) == 0o600
    assert (check(path).is_whole, check(path).end) == (True, "end of the incident")
    player = Player(Recording([path]))
    began = player.instant.at
    assert DOWN_AT_S - BEFORE_S - 61 <= began <= DOWN_AT_S - BEFORE_S
    at = live.store.snapshot().alerts[0].since
    player.play(at - timedelta(seconds=1))
    assert player.snapshot().alerts == ()
    player.play(at + timedelta(seconds=10))
    assert [one.id for one in player.snapshot().alerts] == ["backend:spark-a:unreachable"]
    player.play(at + timedelta(hours=1))
    assert AFTER_S <= (player.recording.end - at).total_seconds() <= AFTER_S + 81


def test_the_same_alert_is_saved_once_in_ten_minutes(saving: Saving) -> None:
    """Also by a second viewer; another alert of the same half minute belongs to the same incident."""
    saving.alert(100.0)
    saving.alert(500.0)
    saving.alert(800.0)
    other = Saving(saving.folder)
    other.incidents.on_written(instant(0.0))
    other.alert(801.0)
    assert saving.names == ["spark-a-unreachable"] * 2
    assert other.lines == []
    saving.begin(2000.0, "node:n:headroom")
    saving.alert(2010.0)
    assert saving.names[2:] == ["n-headroom"]


def test_other_alerts_ends_and_what_holds_at_the_start_are_not_saved(saving: Saving) -> None:
    """An alert of the first minute has nothing before it."""
    saving.alert(-990.0)
    saving.alert(100.0, kind="kv-full")
    saving.begin(200.0, "backend:a:unreachable", Phase.END)
    saving.incidents.on_written(instant(900.0))
    saving.incidents.finish()
    assert (saving.copies, saving.lines) == ([], [])


def test_frames_of_an_earlier_boot_are_no_part_of_an_incident(tmp_path: Path) -> None:
    """The monotonic clock began again, but the machine is up longer now than it was before."""
    path = tmp_path / "night.rec.zst"
    data = b""
    for at, boot_id in ((2500.0, "before"), (2700.0, "before"), (2900.0, "now"), (3000.0, "now")):
        frame = FrameWriter(1)
        data += (
            frame.add(encode(Record(RecordKind.HEAD, instant(at), fields={"boot_id": boot_id}))) + frame.end()
        )
    path.write_bytes(data)
    frames = [*frames_since(2400.0, [path])]
    assert [frame.offset + frame.length for frame in frames] == [len(data), frames[0].offset]
    assert sum(frame.length for frame in frames) < len(data)


def test_the_oldest_copies_are_deleted_first(saving: Saving, monkeypatch: pytest.MonkeyPatch) -> None:
    """Number and bytes of copies are limited; a single incident is cut to its newest frames."""
    for index in range(MOST_COPIES + 2):
        saving.alert(10_000.0 + 1_000 * index, f"s{index}")
    assert saving.names == [f"s{i}-unreachable" for i in range(2, 12)]
    size = saving.copies[0].stat().st_size
    monkeypatch.setattr(module, "MOST_BYTES", 3 * size)
    saving.alert(50_000.0, "big")
    assert saving.names == ["s10-unreachable", "s11-unreachable", "big-unreachable"]
    monkeypatch.setattr(module, "MOST_BYTES", 3 * size - size // 2)
    saving.alert(170.0, "cut")
    (path,) = saving.copies
    assert 0 < path.stat().st_size <= 3 * size - size // 2
    assert (check(path).frames, check(path).damage) == (3, [])


def test_a_full_disk_or_folder_costs_one_line(saving: Saving, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing half-written stays, and the next incident is tried again."""

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(recording_file, "require_room", full)
        saving.alert(100.0)
    assert saving.lines == [
        ("incident not saved: spark-a unreachable: no space left on device", Severity.WARNING)
    ]
    assert saving.copies == []
    saving.alert(1000.0)
    assert len(saving.copies) == 1
    blocked = Saving(saving.folder.parent / "file" / "incidents")
    blocked.folder.parent.write_text("not a folder")
    blocked.incidents.on_written(instant(0.0))
    blocked.alert(100.0)
    assert blocked.lines == [("incident not saved: spark-a unreachable: Not a directory", Severity.WARNING)]
