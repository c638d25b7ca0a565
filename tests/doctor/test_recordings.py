"""The checks of the flight recorder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sparktop.doctor.check import Status
from sparktop.doctor.machine import check_recorder
from sparktop.model.targets import NodeTarget, Watch

pytestmark = pytest.mark.outside


def test_the_folder_is_named_with_what_it_keeps(tmp_path: Path) -> None:
    """The folder is reported with what it holds: nothing, or size, hours and incidents."""
    env = {"XDG_STATE_HOME": str(tmp_path)}
    (check,) = check_recorder(Watch(), env)
    folder = tmp_path / "sparktop/flight"
    assert check.status is Status.OK
    assert check.message == f"nothing recorded yet in {folder}, which keeps at most 64 MiB"
    for name, written in (("1.rec.zst", 3600.0), ("2.rec.zst", 9000.0)):
        (folder / name).write_bytes(bytes(1024))
        os.utime(folder / name, (written, written))
    (folder.parent / "incidents").mkdir()
    (folder.parent / "incidents" / "a.rec.zst").touch()
    (check,) = check_recorder(Watch(), env)
    assert check.message == f"{folder}: 2.0 KiB over 1.5 h, 1 incident saved, of at most 64 MiB"


def test_what_records_nothing_is_said_with_its_remedy(tmp_path: Path) -> None:
    """A recorder that is off, or whose folder is a file, is reported with its remedy."""
    (check,) = check_recorder(Watch(flight=False), {})
    assert check.status is Status.SKIP
    (tmp_path / "sparktop").write_text("")
    (check,) = check_recorder(Watch(), {"XDG_STATE_HOME": str(tmp_path)})
    assert (check.status, "Not a directory" in check.message) == (Status.WARN, True)
    assert "XDG_STATE_HOME" in check.advice


def test_a_network_file_system_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network file system is a warning: each second of the recording would wait for the network."""
    monkeypatch.setattr("sparktop.doctor.machine.is_network", lambda _: True)
    (check,) = check_recorder(Watch(), {"XDG_STATE_HOME": str(tmp_path)})
    assert (check.status, check.message.endswith("on a network file system")) == (Status.WARN, True)


def test_a_machine_that_records_itself_needs_another(tmp_path: Path) -> None:
    """A recorder on the watched machine is a warning: if it hangs, its last seconds are lost."""
    checks = check_recorder(Watch(nodes=(NodeTarget("here"),)), {"XDG_STATE_HOME": str(tmp_path)})
    assert "another machine" in checks[1].advice
