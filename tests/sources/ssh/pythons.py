"""The versions of Python that this machine has, for what must run with each of them."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
_PYENV = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()


@cache
def python(version: str) -> str:
    """Return the path of that Python; skip the test where there is none that runs."""
    names = [
        shutil.which(f"python{version}"),
        *map(str, _PYENV.glob(f"versions/{version}.*/bin/python{version}")),
    ]
    for name in names:
        if name is not None and _runs(name, version):
            return name
    pytest.skip(f"no Python {version} on this machine")


def _runs(program: str, version: str) -> bool:
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([program, "-I", "-S", "-c", code], capture_output=True, timeout=300, check=False)  # noqa: S603 - fixed
    return done.stdout.decode().strip() == version
