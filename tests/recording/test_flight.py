"""Where the flight recorder's files go, and what is deleted of them."""

from __future__ import annotations

import fcntl
import os
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from sparktop.recording.flight import is_network, make_folder, parts, retain


@pytest.mark.parametrize("kind", ["nfs4", "fuse.sshfs", "ext4", "tmpfs"])
def test_a_network_file_system_is_known_by_its_mount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The nearest mount above counts, of two the later one; also where a link leads there."""
    home = tmp_path / "a home"
    home.mkdir()
    (tmp_path / "link").symlink_to(home)
    places = (("/", "ext4"), (str(home), "autofs"), (str(home), kind), ("/else", "nfs"))
    mounts = [SimpleNamespace(mountpoint=place, fstype=fstype) for place, fstype in places]
    monkeypatch.setattr("psutil.disk_partitions", lambda **_: mounts)
    assert is_network(home / "state") == (kind in {"nfs4", "fuse.sshfs"})
    assert is_network(tmp_path / "link" / "state") == (kind in {"nfs4", "fuse.sshfs"})
    assert not is_network(tmp_path / "a home of others")


def test_a_folder_within_that_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner could exchange it; the user's own one is readable by the user only."""
    make_folder(tmp_path / "mine" / "flight")
    assert (tmp_path / "mine" / "flight").stat().st_mode & 0o777 == 0o700
    own = os.getuid()
    monkeypatch.setattr("sparktop.recording.flight.os.getuid", lambda: own + 1)
    with pytest.raises(PermissionError, match="another user"):
        make_folder(tmp_path / "mine" / "flight")


def test_what_another_process_writes_is_not_deleted(tmp_path: Path) -> None:
    """The oldest files go first; a locked one and the lock itself stay."""
    for name in ("1", "2", "3"):
        (tmp_path / f"{name}.rec.zst").write_bytes(bytes(100))
    (tmp_path / "link.rec.zst").symlink_to("/etc/passwd")
    held = os.open(tmp_path / "1.rec.zst", os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_EX)
    retain(tmp_path, 10, datetime(2100, 1, 1, tzinfo=UTC))
    assert [path.name for path in parts(tmp_path)] == ["1.rec.zst", "link.rec.zst"]
    os.close(held)
    retain(tmp_path, 150, datetime.now(UTC))
    assert "1.rec.zst" in [path.name for path in parts(tmp_path)]
