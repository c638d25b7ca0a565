"""Programs of the system that some tests run: missing ones skip a test here and fail it in CI."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

_SYSTEM_PATHS = "/usr/sbin:/usr/local/sbin:/sbin"
"""Not in the PATH of every user; servers are there."""


def installed(program: str, package: str) -> str:
    """Return the path of a program; without it, skip the test, or fail if CI is set."""
    found = shutil.which(program) or shutil.which(program, path=_SYSTEM_PATHS)
    if found is None:
        reason = f"no {program} on PATH (Debian, Ubuntu: apt install {package})"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return found


def page_complaints(page: bytes) -> bytes:
    """Return what promtool says of a page of metrics; without promtool, skip the test."""
    command = [installed("promtool", "prometheus"), "check", "metrics"]
    done = subprocess.run(command, input=page, capture_output=True, timeout=300, check=False)  # noqa: S603 - fixed words
    return done.stdout + done.stderr + b"failed" * bool(done.returncode)
