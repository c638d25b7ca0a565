"""A recording played back and on the screen: every snapshot as it was; files that grow, and damaged ones."""

from __future__ import annotations

import fcntl
import json
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path

import pytest
from msgspec.structs import replace

from sparktop.cli import main
from sparktop.demo.scenario import SCENARIOS, Scenario
from sparktop.errors import UsageError
from sparktop.model.ranks import RanksReading
from sparktop.model.snapshot import BackendState, Snapshot
from sparktop.recording import recorder as recorder_module
from sparktop.recording import replay as replay_module
from sparktop.recording.frames import FrameReader, FrameWriter, Record, RecordError, RecordKind, encode
from sparktop.recording.player import Player, Recording
from sparktop.recording.replay import Replay
from sparktop.report.json_snapshot import to_json
from sparktop.store import SourceKey
from stage.rehearsal import Outage, Rehearsal
from tests.hardware.ras.examples import answer
from tests.recording.conftest import comparable
from tests.recording.recorded import recorded_to

pytestmark = [pytest.mark.outside, pytest.mark.long]

STEPS, STEP_S = 80, 3.0
DOWN_AT_S = 100.0
TAPE_S = 80
ASKED = (62, 67, 72)
"""Seconds at which NCCL answers; the engine has stood still since second 45."""


@dataclass(frozen=True)
class Tape:
    """A rehearsal that was recorded, with the snapshots of the live run."""

    path: Path
    live: list[Snapshot]


def recorded(
    path: Path,
    scenario: Scenario | None,
    on_step: Callable[[Rehearsal, int], None],
    *,
    nodes: int = 2,
    outage: Outage | None = None,
    steps: int = TAPE_S,
    step_s: float = 1.0,
) -> Tape:
    """Record steps of a rehearsal, after each of which `on_step` is called and a snapshot is kept."""
    shown = []
    with recorded_to(path, nodes=nodes, scenario=scenario, outage=outage) as (live, _):
        for step in range(steps):
            live.play(step_s)
            on_step(live, step)
            shown.append(live.store.snapshot())
    return Tape(path, shown)


def _note_half_way(live: Rehearsal, step: int) -> None:
    if step == STEPS // 2:
        live.store.note("discovery", "a note without values")


@pytest.fixture(scope="module")
def tape_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Tape]:
    """Four minutes of a scenario by its name, recorded once; `outage`: a server is gone after 100 s."""

    @cache
    def make(name: str) -> Tape:
        path = tmp_path_factory.mktemp("tape") / f"{name}.rec.zst"
        outage = Outage(0, DOWN_AT_S) if name == "outage" else None
        scene = SCENARIOS.get(name)
        return recorded(path, scene, _note_half_way, outage=outage, steps=STEPS, step_s=STEP_S)

    return make


@pytest.fixture
def taped(tape_of: Callable[[str], Tape]) -> Tape:
    """A recording with an outage."""
    return tape_of("outage")


class Clock:
    """A clock that the test sets; each reading takes a millisecond."""

    def __init__(self) -> None:
        """Start at 0."""
        self.at = 0.0

    def __call__(self) -> float:
        """Return the time."""
        self.at += 0.001
        return self.at


@pytest.fixture
def clock() -> Clock:
    """A clock that only the test moves on."""
    return Clock()


@pytest.fixture
def replay(taped: Tape, clock: Clock) -> Iterator[Replay]:
    """The replay of the recording, at its end."""
    recording = Recording([taped.path])
    found = Replay(recording, clock=clock)
    finish(found)
    yield found
    recording.close()


def finish(replay: Replay) -> None:
    """Work until nothing is left to do."""
    for _ in range(20_000):
        replay.work(0.1)
        if not replay.busy:
            return
    raise AssertionError("the work never ends")


def test_it_begins_at_the_end_and_a_jump_shows_the_live_picture(taped: Tape, replay: Replay) -> None:
    """Jumps back and forth show pictures that equal the live ones of those moments."""
    assert replay.word().endswith(" end")
    for index in (43, 10, 70):
        live = taped.live[index]
        replay.go(live.taken_at)
        finish(replay)
        shown = replay.snapshot()
        assert abs((shown.taken_at - live.taken_at).total_seconds()) <= 1
        exact = Player(Recording([taped.path]))
        exact.play(shown.taken_at)
        assert comparable(shown) == comparable(exact.snapshot())


def test_events_are_found(replay: Replay) -> None:
    """The outage from the end backwards and from the start forwards, and a mark on the bar."""
    finish(replay)
    replay.to_start()
    finish(replay)
    assert not replay.step_event(-1)
    steps = []
    while replay.step_event(1):
        finish(replay)
        steps.append(replay.snapshot().at)
    assert any(abs(at - DOWN_AT_S - 1) < 4 for at in steps)
    assert replay.bar().events
    assert {point for _, point in replay.bar().load} != {None}


def test_events_after_the_last_head_are_kept_and_missing_ones_only_once_all_are_read(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No head tells of the outage: a jump to a start that is no longer in memory forgets it no more."""
    monkeypatch.setattr(recorder_module, "FRAME_S", 30.0)
    for name, seconds in (("GLANCE_S", 2.0), ("WARM_UP_S", 2.0), ("RECENT_S", 15.0)):
        monkeypatch.setattr(replay_module, name, seconds)
    taped = recorded(tmp_path / "a.rec.zst", None, lambda *_: None, outage=Outage(0, 38.0), steps=50)
    recording = Recording([taped.path])
    replay = Replay(recording, clock=clock)
    for move, is_known in ((replay.to_start, False), (replay.to_end, True), (replay.to_start, True)):
        move()
        finish(replay)
        is_found = any("nothing listens" in event.message for event in replay.bar().events)
        assert (replay.has_read_events, is_found) == (is_known, is_known)
    recording.close()


def test_a_file_that_grows_is_followed(taped: Tape, tmp_path: Path, clock: Clock) -> None:
    """At its end it waits and says so; what is appended is shown, also in pieces."""
    path, data = tmp_path / "grows.rec.zst", taped.path.read_bytes()
    path.write_bytes(data[: len(data) // 3])
    os.utime(path, (2**32, 2**32))  # it has just changed, however long the test takes
    recording = Recording([path])
    replay = Replay(recording, clock=clock)
    replay.work(100.0)
    finish(replay)
    assert replay.word().endswith("end, still written")
    replay.play()
    ends: list[datetime] = []
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # as its writer does
        for start in range(len(data) // 3, len(data), 997):
            file.write(data[start : start + 997])
            file.flush()
            clock.at += 0.5
            replay.speed = 64
            replay.work(100.0)
            ends.append(recording.end)
    for _ in range(40):
        clock.at += 0.5
        replay.work(100.0)
    assert ends == sorted(ends)
    assert len(set(ends)) > 10
    assert replay.word().endswith(" end")
    assert len(recording.frames) == len(Recording([taped.path]).frames)
    assert replay.snapshot().at == pytest.approx(STEPS * STEP_S, abs=2)
    assert comparable(replay.snapshot())["events"] == comparable(taped.live[-1])["events"]
    recording.close()


def test_a_file_of_a_killed_writer_is_over(taped: Tape, tmp_path: Path) -> None:
    """A file is still written while it is locked or has just changed; after that it counts as cut off."""
    path, data = tmp_path / "killed.rec.zst", taped.path.read_bytes()
    path.write_bytes(data[: len(data) // 8])
    recording = Recording([path])
    assert not recording.is_over
    os.utime(path, (0, 0))
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        recording.read_appended()
        assert not recording.is_over
    recording.read_appended()
    assert (recording.is_over, recording.was_cut) == (True, True)
    replay = Replay(recording)
    finish(replay)
    assert replay.word().endswith(" end, cut off")
    with path.open("ab") as file:
        file.write(data[len(data) // 8 :])
    recording.read_appended()
    assert (recording.is_over, recording.was_cut) == (True, False)
    recording.close()


@pytest.mark.parametrize("seed", range(5))
def test_damaged_files_are_shown_as_far_as_they_go(
    taped: Tape, tmp_path: Path, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Flipped, cut and added bytes: a refusal in words, or rows and a replay, never an exception."""
    rng = random.Random(seed)  # noqa: S311 - dice of a test
    data = bytearray(taped.path.read_bytes())
    for _ in range(rng.choice((1, 3, 30))):
        index = rng.randrange(len(data))
        match rng.randrange(3):
            case 0:
                data[index] ^= 1 << rng.randrange(8)
            case 1:
                del data[index : index + rng.randrange(1, 2000)]
            case _:
                data[index:index] = os.urandom(rng.randrange(1, 200))
    path = tmp_path / "damaged"
    path.write_bytes(data)
    form = rng.choice(("csv", "jsonl", "openmetrics"))
    assert main(["dump", str(path), "--format", form, "--every", "10"]) in {0, 2}
    out, err = capsys.readouterr()
    assert out or err
    assert "this is a bug" not in err
    try:
        recording = Recording([path])
    except UsageError:
        return
    replay = Replay(recording)
    replay.work(5.0)
    replay.to_start()
    replay.work(5.0)
    assert replay.bar().first <= replay.bar().last
    assert replay.word().startswith("REPLAY")
    recording.close()


@pytest.fixture(params=["oscillation", "memory", "outage", "hang-b"])
def tape(request: pytest.FixtureRequest, tape_of: Callable[[str], Tape]) -> Tape:
    """A recorded run of each scenario."""
    return tape_of(request.param)


def test_every_replayed_snapshot_equals_the_live_one(tape: Tape) -> None:
    """They are equal field by field, with all histories, verdicts, alerts and events."""
    assert is_replayed_alike(tape)


def test_a_seek_gives_the_same_picture(tape: Tape) -> None:
    """A jump to a moment replays what the picture needs; only since when a verdict holds may differ."""
    player, live = Player(Recording([tape.path])), tape.live[STEPS // 3]
    player.seek(live.taken_at)
    assert comparable(player.snapshot()) == comparable(live)


def test_a_jump_far_into_a_recording_has_the_true_beginnings(tape: Tape) -> None:
    """With three minutes replayed, alerts, events and verdicts of the minutes before are as they were live.

    Only what was last read before these minutes is missing: the age and engine of a dead backend.
    """
    player, live = Player(Recording([tape.path])), tape.live[-1]
    player.seek(live.taken_at, warm_up_s=180.0)
    shown = player.snapshot()
    found, wanted = comparable(shown), comparable(live)
    assert (found["alerts"], found["events"]) == (wanted["alerts"], wanted["events"])
    verdicts = [[(one.group, one.word, one.since) for one in each.balance] for each in (shown, live)]
    assert verdicts[0] == verdicts[1]
    assert [one.failing_since for one in shown.backends] == [one.failing_since for one in live.backends]


def is_replayed_alike(tape: Tape) -> bool:
    """Return whether every third step's snapshot, and the last, is the live one, field by field."""
    player = Player(Recording([tape.path]))
    for live in (*tape.live[::3], tape.live[-1]):
        player.play(live.taken_at)
        assert comparable(player.snapshot()) == comparable(live)
    return player.unreadable == 0


def test_a_replay_shows_the_ranks_as_the_live_run_did(tmp_path: Path) -> None:
    """A stuck engine whose ranks NCCL reports as apart: events, verdict, state and JSON are the live ones."""

    def ask(live: Rehearsal, second: int) -> None:
        if second in ASKED:
            name, at = live.watch.backends[0].name, live.store.snapshot().at
            for reading in (RanksReading(at, "spark-a"), RanksReading(at, "spark-a", answer("lags-by-one"))):
                live.store.accept(SourceKey.backend(name), reading)

    tape = recorded(tmp_path / "stuck.rec.zst", SCENARIOS["hang-a"], ask, nodes=4)
    assert tape.live[60].backends[0].state is not BackendState.STUCK
    last = tape.live[-1].backends[0]
    assert (last.state, last.ranks is not None) == (BackendState.STUCK, True)
    assert is_replayed_alike(tape)


Json = object
HOSTILE: tuple[Json, ...] = (
    None,
    True,
    -1,
    10**30,
    "",
    "\x1b[31m[red]x[/]\u202e",
    "a" * 5000,
    [],
    {},
    [[[[]]]],
)
FILES = 20


@pytest.fixture(scope="module")
def honest(tape_of: Callable[[str], Tape]) -> list[Record]:
    """The records of the first 20 s of an oscillating router."""
    with tape_of("oscillation").path.open("rb") as file:
        records = [record for record, _ in FrameReader(file.fileno()).records()]
    return [one for one in records if one.instant.at <= 20.0]


def changed(value: Json, dice: random.Random) -> Json:
    """Return JSON with one part removed, renamed or replaced."""
    if isinstance(value, dict) and value and dice.random() < 0.8:
        key = dice.choice(list(value))
        if dice.random() < 0.2:
            return {name: one for name, one in value.items() if name != key}
        return {**value, key: changed(value[key], dice)}
    if isinstance(value, list) and value and dice.random() < 0.8:
        index = dice.randrange(len(value))
        return [*value[:index], changed(value[index], dice), *value[index + 1 :]]
    return dice.choice(HOSTILE)


def poisoned(record: Record, dice: random.Random) -> Record:
    """Return a record with another body, other fields, another source or another kind."""
    match dice.randrange(4):
        case 0 if record.kind == RecordKind.PAGE:
            body = bytearray(record.body)
            for _ in range(20):
                body[dice.randrange(len(body))] = dice.randrange(256)
            return replace(record, body=bytes(body))
        case 0 | 1 if record.body and record.kind != RecordKind.PAGE:
            return replace(record, body=json.dumps(changed(json.loads(record.body), dice)).encode())
        case 2:
            return replace(record, source=dice.choice((None, "backend:", "node:\x1b[31m", "x")))
        case 3:
            return replace(record, kind=dice.choice((*RecordKind, "unknown")))
    fields = changed(dict(record.fields), dice)
    return replace(record, fields=fields if isinstance(fields, dict) else {})


@pytest.mark.parametrize("seed", range(FILES))
def test_whatever_a_recording_holds_it_is_played_or_refused(
    honest: list[Record], tmp_path: Path, seed: int
) -> None:
    """No traceback, and no control character in what is shown."""
    dice = random.Random(seed)  # noqa: S311 - dice of a test
    frame, data = FrameWriter(1), b""
    for record in honest:
        chosen = (
            record.kind in {RecordKind.HEAD, RecordKind.IDENTITY, RecordKind.ROUTER, RecordKind.WATCH}
            or dice.random() < 0.05
        )
        try:
            data += frame.add(encode(poisoned(record, dice) if chosen and dice.random() < 0.3 else record))
        except RecordError:
            data += frame.add(encode(record))
    path = tmp_path / "a"
    path.write_bytes(data + frame.end())
    try:
        player = Player(Recording([path]))
    except UsageError:
        return
    player.play(honest[-1].instant.wall)
    assert "\\u001b" not in json.dumps(to_json(player.snapshot()))


def with_targets(count: int, honest: list[Record], path: Path) -> Path:
    """Write a recording whose head names `count` servers."""
    first = json.loads(honest[0].body)
    targets = [{"kind": "backend", "name": f"b{n}", "url": "http://127.0.0.1:1"} for n in range(count)]
    body = {**first, "watch": {**first["watch"], "targets": targets}}
    frame = FrameWriter(3)
    data = frame.add(encode(replace(honest[0], body=json.dumps(body).encode())))
    path.write_bytes(data + frame.add(encode(honest[1])) + frame.end())
    return path


def test_a_recording_of_too_many_servers_is_refused(honest: list[Record], tmp_path: Path) -> None:
    """A small file that names 30,000 servers is refused with one line; 1,024 can be played."""
    path = with_targets(30_000, honest, tmp_path / "many")
    assert path.stat().st_size < 300_000
    with pytest.raises(UsageError, match=r"many cannot be played: it names 30,000 servers and machines"):
        Player(Recording([path]))
    player = Player(Recording([with_targets(1024, honest, tmp_path / "most")]))
    assert len(player.store.targets()) == 1024
