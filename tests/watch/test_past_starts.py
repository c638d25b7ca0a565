"""Earlier starts in a file of the state folder."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from sparktop.model.snapshot import PastStart
from sparktop.model.targets import Watch
from sparktop.store import Store
from sparktop.watch.state_files import add_starts, keep_starts, read_starts, starts_file

ONE = PastStart("h", "vllm", "m", 280.0, {"weights": 40.0}, "boot", warm=True, ended_at=5.0)


def test_a_start_comes_back_as_it_was(tmp_path: Path) -> None:
    """A missing file has no starts, and its folder is made."""
    path = tmp_path / "state" / "starts.json"
    assert read_starts(path) == ((), None)
    assert add_starts(path, [ONE]) is None
    assert read_starts(path) == ((ONE,), None)
    assert path.stat().st_mode & 0o777 == 0o600


def test_only_the_newest_of_each_model_are_kept(tmp_path: Path) -> None:
    """Of a model on a machine the newest six starts are kept, whatever other models and machines have."""
    path = tmp_path / "starts.json"
    add_starts(path, [replace(ONE, ended_at=float(number)) for number in range(9)])
    add_starts(path, [replace(ONE, model="other", ended_at=1.5)])
    add_starts(path, [replace(ONE, host="i", ended_at=number + 0.25) for number in range(7)])
    starts, _ = read_starts(path)
    kept = {
        key: [one.ended_at for one in starts if (one.host, one.model) == key]
        for key in (("h", "m"), ("h", "other"), ("i", "m"))
    }
    assert kept == {
        ("h", "m"): [3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
        ("h", "other"): [1.5],
        ("i", "m"): [1.25, 2.25, 3.25, 4.25, 5.25, 6.25],
    }
    assert [one.ended_at for one in starts] == sorted(one.ended_at for one in starts)
    assert len(starts) == 13


@pytest.mark.parametrize("content", [b"", b'{"starts": [{"host": 3}]}', b"\xff" * 9])
def test_a_damaged_file_is_one_line_and_is_replaced(tmp_path: Path, content: bytes) -> None:
    """What it held is lost, nothing else."""
    path = tmp_path / "starts.json"
    path.write_bytes(content)
    assert read_starts(path) == ((), "its content is damaged")
    assert add_starts(path, [ONE]) is None
    assert read_starts(path) == ((ONE,), None)


@pytest.mark.outside
async def test_the_simulation_is_not_kept(tmp_path: Path) -> None:
    """Its machines have the names of real ones."""
    env = {"XDG_STATE_HOME": str(tmp_path)}
    await keep_starts(Store(Watch(), simulated=True), asyncio.sleep, env)
    assert starts_file(env).exists() is False
