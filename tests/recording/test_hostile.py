"""Recordings made to harm: right checksums around wrong content."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from sparktop.demo.scenario import SCENARIOS
from sparktop.errors import UsageError
from sparktop.recording.frames import FrameReader, FrameWriter
from sparktop.recording.player import Player, Recording
from sparktop.recording.record import Kind, Record, RecordError, encode
from sparktop.recording.recorder import Recorder
from sparktop.report.json_snapshot import to_json
from stage.rehearsal import Rehearsal

pytestmark = [pytest.mark.outside, pytest.mark.long]

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
FILES = 40


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    """The records of 20 s of an oscillating router."""
    path = tmp_path_factory.mktemp("honest") / "a"
    scenario = SCENARIOS["oscillation"]
    watch = Rehearsal(nodes=2, scenario=scenario).watch
    recorder = Recorder(watch, next_path=lambda _: path)
    live = Rehearsal(nodes=2, scenario=scenario, journal=recorder)
    recorder.start(live.store)
    live.play(20)
    recorder.stop("quit")
    with path.open("rb") as file:
        return [located.record for located in FrameReader(file.fileno()).records()]


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
        case 0 if record.kind == Kind.PAGE:
            body = bytearray(record.body)
            for _ in range(20):
                body[dice.randrange(len(body))] = dice.randrange(256)
            return replace(record, body=bytes(body))
        case 0 | 1 if record.body and record.kind != Kind.PAGE:
            return replace(record, body=json.dumps(changed(json.loads(record.body), dice)).encode())
        case 2:
            return replace(record, source=dice.choice((None, "backend:", "node:\x1b[31m", "x")))
        case 3:
            return replace(record, kind=dice.choice((*Kind, "unknown")))
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
        chosen = record.kind in {Kind.HEAD, Kind.IDENTITY, Kind.ROUTER, Kind.WATCH} or dice.random() < 0.05
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
