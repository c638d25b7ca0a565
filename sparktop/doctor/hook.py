"""Check of the hook program: whether it exists and can be run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from sparktop.doctor.check import Check, Status
from sparktop.model.text import clean

_NAME = "hook"


def check_hook(command: Sequence[str], env: Mapping[str, str]) -> Check:
    """Check whether the hook program, the first word of `command`, exists and can be run."""
    program = clean(command[0], 200)
    if "/" not in command[0]:
        found = shutil.which(command[0], path=env.get("PATH"))
        if found is None:
            return Check(
                _NAME, Status.FAIL, f"{program} is not on the PATH", "write its whole path in [events] hook"
            )
        return Check(_NAME, Status.OK, f"{clean(found, 200)} is run for events")
    path = Path(command[0])
    if not path.exists():
        return Check(_NAME, Status.FAIL, f"{program} does not exist", "mend the path in [events] hook")
    if not path.is_file() or not os.access(path, os.X_OK):
        return Check(_NAME, Status.FAIL, f"{program} is not executable", f"chmod +x {program}")
    return Check(_NAME, Status.OK, f"{program} is run for events")
