"""The cache of checked configuration files: later starts skip the check, and unusual entries are ignored."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sparktop.config import cache
from sparktop.config import schema as config
from sparktop.config.cache import KEPT, CheckedFiles, Configured, configured
from sparktop.config.schema import load
from sparktop.config.watch import read_config
from sparktop.errors import ConfigError
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

    def entries(self) -> list[Path]:
        """Return all files in the cache folder."""
        folder = CheckedFiles(self.env).folder
        assert folder is not None
        return sorted(folder.iterdir()) if folder.exists() else []


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


def test_variables_are_looked_up_at_each_start(desk: Desk) -> None:
    """A start from the cache uses the current environment, and warns of unset variables with their lines."""
    desk.start()
    desk.env["A_KEY"] = "another"
    assert desk.start().backends[0].api_key == "another"
    desk.env["A_KEY"] = ""
    found = configured(desk.path, read_config(desk.path)[0], desk.env)
    watch, warnings = found.watch, found.warnings
    assert watch.backends[0].api_key is None
    unset = "names the environment variable A_KEY, which is not set"
    assert warnings == [
        f"{desk.path}:12: key 'nodes[0].token_env' {unset}",
        f"{desk.path}:7: key 'backends[0].api_key_env' {unset}",
    ]
    assert desk.checked == 1


def test_a_changed_file_is_checked_again(desk: Desk) -> None:
    """A changed text has another cache entry, so that it is checked again."""
    desk.start()
    desk.path.write_text(FILE.replace("= 2\n", "= 3\n"), encoding="utf-8")
    assert desk.start().interval_s == 3.0
    assert desk.checked == 2


def test_another_version_checks_again(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another version of sparktop checks again."""
    desk.start()
    monkeypatch.setattr("sparktop.config.cache.__version__", "999")
    desk.start()
    assert desk.checked == 2


def test_settings_of_another_shape_are_checked_again(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry made for other settings classes is not used."""
    desk.start()
    monkeypatch.setattr("sparktop.config.cache._SHAPE", 1)
    desk.start()
    assert desk.checked == 2


def test_a_wrong_file_is_never_kept(desk: Desk) -> None:
    """An invalid file is checked at each start, with its errors, and has no cache entry."""
    desk.path.write_text("intervall_s = 1\n", encoding="utf-8")
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"sparktop\.toml:1: key 'intervall_s' is unknown"):
            desk.start()
    assert desk.entries() == []


def test_a_theme_that_has_gone_is_told(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a theme was deleted since the check, the file is checked again, which reports it."""
    desk.start()
    monkeypatch.setattr("sparktop.config.cache.find_palette", lambda _: None)
    desk.start()
    assert desk.checked == 2


def edited(change: Callable[[dict[str, object]], object]) -> Callable[[Path], object]:
    def damage(path: Path) -> None:
        data = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps(change(data)), encoding="utf-8")

    return damage


def replaced(path: Path, make: Callable[[Path], object]) -> None:
    path.unlink()
    make(path)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-9]),
    "no text": lambda path: path.write_bytes(b"\xff\xfe"),
    "deep": lambda path: path.write_text("[" * 100_000, encoding="utf-8"),
    "long number": lambda path: path.write_text("1" * 5000, encoding="utf-8"),
    "a list": lambda path: path.write_text("[]", encoding="utf-8"),
    "null": lambda path: path.write_text("null", encoding="utf-8"),
    "other keys": edited(lambda data: {"settings": data["settings"]}),
    "settings are a list": edited(lambda data: {**data, "settings": []}),
    "a value is another": edited(lambda data: {**data, "settings": {"interval_s": 9.0}}),
    "wrong sum": edited(lambda data: {**data, "sha256": 3}),
    "a folder": lambda path: replaced(path, Path.mkdir),
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


@pytest.mark.parametrize("settings", [{}, {"theme": "spark-dark"}, {"theme": "spark-dark", "nodes": [3]}])
def test_a_whole_entry_of_another_shape_is_passed_over(desk: Desk, settings: dict[str, object]) -> None:
    """An entry with a valid checksum that lacks needed settings is ignored."""
    expected = desk.start()
    CheckedFiles(desk.env).remember(FILE, settings, [])
    assert desk.start() == expected
    assert desk.checked == 2


def test_an_entry_of_another_user_is_passed_over(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry that another user owns is ignored."""
    desk.start()
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    desk.start()
    assert desk.checked == 2


def test_only_the_newest_entries_are_kept(desk: Desk) -> None:
    """Only the newest entries are kept, and remains of interrupted writes are removed."""
    desk.start()
    leftover = desk.entry.parent / ".x.1.part"
    leftover.touch()
    os.utime(leftover, (0, 0))
    for number in range(KEPT + 3):
        desk.path.write_text(f"interval_s = {number + 1}\n", encoding="utf-8")
        desk.start()
    assert len(desk.entries()) == KEPT
    assert desk.entry in desk.entries()
    assert leftover not in desk.entries()


@pytest.mark.parametrize("env", [{}, {"XDG_CACHE_HOME": "relative", "HOME": ""}, {"HOME": "/proc/nowhere"}])
def test_without_a_place_nothing_is_kept(desk: Desk, env: dict[str, str]) -> None:
    """Without a home, or if nothing can be written, each start makes the full check."""
    desk.env = env
    desk.start()
    desk.start()
    assert desk.checked == 2


def test_below_the_home_without_a_variable() -> None:
    """Without $XDG_CACHE_HOME, the cache is below ~/.cache."""
    assert CheckedFiles({"HOME": "/h"}).folder == Path("/h/.cache/sparktop/checked")


def test_an_edited_rule_invalidates_the_cache() -> None:
    """All modules with validation rules are found, because the cache depends on their modification times."""
    assert len(cache._rules_age()) == len(cache._RULES)
