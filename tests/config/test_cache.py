"""The cache of checked configuration files: later starts skip the check, and unusual entries are ignored."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sparktop.config import schema as config
from sparktop.config.cache import CheckedFiles, Configured, configured
from sparktop.config.schema import load
from sparktop.config.watch import read_config
from sparktop.model.targets import Watch

GOOD = sorted((Path(__file__).parent.parent / "data" / "configs" / "good").glob("*.toml"))
FILE = """\
interval_s = 2
keys.freeze = "space"
low_bandwidth = true
[[backends]]
name = "b"
url = "http://127.0.0.1:8000"
api_key_env = "A_KEY"
[[nodes]]
name = "n"
via = "agent"
url = "https://n:9750"
token_env = "A_KEY"
tls_ca = "ca.pem"
[alerts]
slow_clock_mhz = 900
[models."m/n"]
bytes_per_token_gb = 2.5
"""


class Desk:
    """A configuration file, a cache folder, and a count of full checks."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Create both below `folder`."""
        self.path = folder / "sparktop.toml"
        self.path.write_text(FILE, encoding="utf-8")
        self.env = {"XDG_CACHE_HOME": str(folder / "cache"), "A_KEY": "hunter2"}
        self.checked = 0
        full = config.check

        def counted(path: Path, text: str) -> config.Config:
            self.checked += 1
            return full(path, text)

        monkeypatch.setattr(config, "check", counted)

    def start(self) -> Watch:
        """Read the file as at a start."""
        return configured(self.path, read_config(self.path)[0], self.env).watch

    @property
    def entry(self) -> Path:
        """The path of the cache entry for the file's current text."""
        path = CheckedFiles(self.env).entry(self.path.read_text(encoding="utf-8"))
        assert path is not None
        return path


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Return a `Desk` for this test alone."""
    return Desk(tmp_path, monkeypatch)


def test_a_second_start_checks_nothing_and_watches_the_same(desk: Desk) -> None:
    """The second start makes no check and returns the same watch, including the API key."""
    first, second = desk.start(), desk.start()
    assert desk.checked == 1
    assert first == second
    assert second.backends[0].api_key == second.nodes[0].token == "hunter2"
    assert second.nodes[0].tls_ca == str(desk.path.parent / "ca.pem")
    assert second.node_thresholds.slow_clock_mhz == 900
    assert (second.interval_s, second.keys, second.low_bandwidth) == (2.0, {"freeze": "space"}, True)


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_every_good_file_is_the_same_from_the_cache(path: Path, desk: Desk) -> None:
    """For every valid file, the watch and the warnings are the same with and without the cache."""
    loaded = load(path)
    expected = Configured(loaded.watch({}), loaded.warnings({}), loaded.powers())
    env = {"XDG_CACHE_HOME": desk.env["XDG_CACHE_HOME"]}
    desk.checked = 0
    assert [configured(path, read_config(path)[0], env) for _ in range(2)] == [expected, expected]
    assert desk.checked == 1


def test_the_entry_is_this_users_alone_and_holds_no_secret(desk: Desk) -> None:
    """The entry has mode 0600 and holds the name of a variable, never its value."""
    desk.start()
    assert desk.entry.stat().st_mode & 0o777 == 0o600
    assert desk.entry.parent.stat().st_mode & 0o777 == 0o700
    text = desk.entry.read_text(encoding="utf-8")
    assert "A_KEY" in text
    assert "hunter2" not in text


def edited(change: Callable[[dict[str, object]], object]) -> Callable[[Path], object]:
    def damage(path: Path) -> None:
        data = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps(change(data)), encoding="utf-8")

    return damage


def replaced(path: Path, make: Callable[[Path], object]) -> None:
    path.unlink()
    make(path)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-9]),
    "no text": lambda path: path.write_bytes(b"\xff\xfe"),
    "a list": lambda path: path.write_text("[]", encoding="utf-8"),
    "a value is another": edited(lambda data: {**data, "settings": {"interval_s": 9.0}}),
    "wrong sum": edited(lambda data: {**data, "sha256": 3}),
    "a pipe": lambda path: replaced(path, os.mkfifo),
    "a link": lambda path: replaced(path, lambda place: place.symlink_to("/dev/zero")),
    "others may write": lambda path: path.chmod(0o620),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_an_odd_entry_is_passed_over(desk: Desk, damage: Callable[[Path], object]) -> None:
    """Whatever replaces the entry, the file is checked in full with the same result."""
    expected = desk.start()
    damage(desk.entry)
    assert desk.start() == expected
    assert desk.checked == 2
