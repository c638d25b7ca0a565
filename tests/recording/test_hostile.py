"""Recordings made to harm: right checksums around wrong content."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from msgspec.structs import replace

from sparktop.demo.scenario import SCENARIOS
from sparktop.errors import UsageError
from sparktop.recording.frames import FrameReader, FrameWriter, Kind, Record, RecordError, encode
from sparktop.recording.player import Player, Recording
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
FILES = 20


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
