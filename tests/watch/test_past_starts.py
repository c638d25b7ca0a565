"""Earlier starts and setups in files of the state folder, and published tables beside the configuration."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from sparktop.model.node import MemoryAsk
from sparktop.model.snapshot import Kept, PastStart
from sparktop.model.targets import Watch
from sparktop.model.yardsticks import (
    PastSetup,
    PublishedRates,
    SteadyLoad,
)
from sparktop.store import Store
from sparktop.watch.state_files import (
    add_setups,
    add_starts,
    keep_setups,
    keep_starts,
    read_kept,
    read_recipes,
    read_starts,
    starts_file,
)

ONE = PastStart("h", "vllm", "m", 280.0, {"weights": 40.0}, "boot", warm=True, ended_at=5.0)


def test_a_start_comes_back_as_it_was(tmp_path: Path) -> None:
    """A missing file has no starts, and its folder is made."""
    path = tmp_path / "state" / "starts.json"
    assert read_starts(path) == ((), None)
    assert add_starts(path, [ONE]) is None
    assert read_starts(path) == ((ONE,), None)
    assert path.stat().st_mode & 0o777 == 0o600


def test_starts_of_an_older_version_have_no_memory(tmp_path: Path) -> None:
    """Their file opens; what it lacks is unknown. Memory comes back as it was."""
    path = tmp_path / "starts.json"
    path.write_text(
        '{"starts": [{"host": "h", "engine": "vllm", "model": "m", "total_s": 3.0, "ended_at": 2}]}'
    )
    (old,), problem = read_starts(path)
    assert (problem, old.peak_bytes, old.gpu_bytes, old.asks) == (None, None, None, None)
    new = replace(ONE, peak_bytes=90 << 30, gpu_peak_bytes=84 << 30, gpu_bytes=80 << 30, asks=MemoryAsk(0.7))
    assert add_starts(path, [new]) is None
    assert read_starts(path) == ((old, new), None)


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


# Setups of servers with their bests, and published tables.

BEST = SteadyLoad(5.0, 8.0, 8.0, 40.0, 200.0, 30.0)
SETUP = PastSetup("b:8000", "vllm", "m", {"version": "1"}, 5.0, (BEST,))
RECIPE = {
    "name": "mine",
    "model": "org/m",
    "engine": "sglang",
    "machine": "GB10",
    "targets": [{"name": "one", "levels": [{"concurrency": 4, "figures": {"decode_tps": 80, "ttft_ms": 9}}]}],
}


def test_setups_come_back_as_they_were(tmp_path: Path) -> None:
    """Those of a server that changed take the place of its own; others stay, the newest of all."""
    path = tmp_path / "state" / "bests.json"
    other = replace(SETUP, model="other")
    assert add_setups(path, [SETUP, other]) is None
    newer = replace(SETUP, facts={"version": "2"}, at=6.0)
    assert add_setups(path, [newer]) is None
    assert read_kept(path) == (Kept(setups=(other, newer)), None)
    path.chmod(0o666)
    assert read_kept(path)[0] == Kept()


def test_a_recipe_of_the_user_is_read_if_only_the_user_can_write_it(tmp_path: Path) -> None:
    """One that others can write, or that is no table, is named; the shipped ones are there."""
    folder = tmp_path / "sparktop" / "recipes"
    folder.mkdir(parents=True)
    env = {"XDG_CONFIG_HOME": str(tmp_path)}
    shipped, problem = read_recipes(env)
    assert len({one.source for one in shipped}) == len(shipped) > 5
    assert problem is None
    (folder / "mine.json").write_text(json.dumps(RECIPE))
    (mine,) = read_recipes(env)[0][len(shipped) :]
    source = "mine: one, lengths not stated"
    assert mine == PublishedRates(source, "org/m", "sglang", "GB10", levels=((4, 80.0),))
    (folder / "mine.json").chmod(0o666)
    found, problem = read_recipes(env)
    assert (found, "only this user can write" in (problem or "")) == (shipped, True)
    (folder / "mine.json").unlink()
    (folder / "no.json").write_text("{}")
    assert "no.json: no published table" in (read_recipes(env)[1] or "")


async def ended(_: float) -> None:
    raise asyncio.CancelledError


async def test_bests_of_a_server_are_kept_and_given_again(tmp_path: Path) -> None:
    """A store that meets the server later gets its setups, and the published tables."""
    env = {"XDG_STATE_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    add_setups(tmp_path / "sparktop" / "bests.json", [SETUP, replace(SETUP, model="other")])
    store = Store(Watch())
    store.yardsticks.wanted.add(SETUP.key)
    with pytest.raises(asyncio.CancelledError):
        await keep_setups(store, ended, env)
    assert store.yardsticks.setups(SETUP.key) == (SETUP,)
