"""The check of the hook program."""

from __future__ import annotations

from pathlib import Path

from sparktop.doctor.check import Status
from sparktop.doctor.machine import check_hook


def test_a_program_that_can_be_run_is_fine(tmp_path: Path) -> None:
    """A program is found by its path, or by its name on the PATH."""
    path = tmp_path / "on-event"
    path.write_text("#!/bin/sh\n", encoding="utf-8")
    path.chmod(0o755)
    assert check_hook([str(path), "x"], {}).status is Status.OK
    check = check_hook(["on-event"], {"PATH": str(tmp_path)})
    assert (check.status, str(path) in check.message) == (Status.OK, True)


def test_what_cannot_be_run_is_said_with_its_remedy(tmp_path: Path) -> None:
    """A program that cannot be run is reported with the remedy for each reason."""
    path = tmp_path / "on-event"
    missing = check_hook([str(path)], {})
    assert (missing.status, missing.message) == (Status.FAIL, f"{path} does not exist")
    path.write_text("", encoding="utf-8")
    path.chmod(0o644)
    plain = check_hook([str(path)], {})
    assert (plain.status, plain.advice) == (Status.FAIL, f"chmod +x {path}")
    assert check_hook([f"{tmp_path}/"], {}).status is Status.FAIL
    assert check_hook(["on-event"], {"PATH": "/nonexistent"}).status is Status.FAIL
