"""The shim of the NVIDIA library, compiled once for all tests, and processes that use it as their driver."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.hardware import gb10_root

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
Steps = list[tuple[float, str]]


@dataclass(frozen=True)
class Shim:
    """A folder with a compiled library, and the files of its processes."""

    folder: Path

    def run(self, script: str, *arguments: str, text: str) -> Any:  # noqa: ANN401 - JSON of the script's own form
        """Run a script beside this file with `text` as standard input; return its JSON output."""
        env = {key: value for key, value in os.environ.items() if not key.startswith(("XDG_", "SPARKTOP_"))}
        env |= {
            "HOME": str(self.folder),
            "LD_LIBRARY_PATH": str(self.folder),
            "NVML_SHIM_STATE": str(self.folder / "state"),
            "NVML_SHIM_LOG": str(self.folder / "log"),
            "PYTHONPATH": str(ROOT),
        }
        command = [sys.executable, str(HERE / script), *arguments]
        done = subprocess.run(  # noqa: S603 - our own script
            command,
            input=text,
            env=env,
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
            cwd=self.folder,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def read(self, root: Path, machines: dict[str, Steps]) -> dict[str, list[dict[str, Any]]]:
        """Return the readings of each machine at each of its steps."""
        found: dict[str, list[dict[str, Any]]] = self.run(
            "read_machines.py", str(root), text=json.dumps(machines)
        )
        return found


@pytest.fixture(scope="session")
def spark_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the root of a DGX Spark."""
    return gb10_root.build(tmp_path_factory.mktemp("spark"))


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Shim:
    """Return the compiled shim, in a folder of its own."""
    compiler = shutil.which("cc")
    if compiler is None:
        reason = "no C compiler (cc): the driver's other side cannot be built"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("shim")
    options = ("-shared", "-fPIC", "-Wall", "-Werror", "-Wl,-soname,libnvidia-ml.so.1")
    command = [compiler, *options, "-o", str(folder / "libnvidia-ml.so.1"), str(HERE / "libnvidia_ml.c")]
    subprocess.run(command, check=True, timeout=50)  # noqa: S603 - our own source
    return Shim(folder)
