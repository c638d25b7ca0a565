"""Which modules are imported before the first picture."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LATE = (
    "sparktop.analysis.limited_by",
    "sparktop.analysis.machines_compared",
    "sparktop.analysis.slow_link",
    "sparktop.engines",
    "sparktop.model.sweep",
    "sparktop.panels.server.detail",
    "sparktop.panels.group.panel",
    "sparktop.panels.machine.detail",
    "sparktop.sources.engine_http",
    "sparktop.store.balance_judging",
    "sparktop.sweep.plan.plan",
    "sparktop.sweep.session",
    "sparktop.watch.state_files",
)
"""What no start needs: the reading of servers, judgements, screens of their own, sweeps."""
HEAVY = ("pydantic", "httpx", "aiohttp", "psutil", "plotext", "pynvml", "tomlkit", "jinja2")
CONFIG = """
theme = "spark-light"
[[nodes]]
name = "n"
[[backends]]
name = "vllm-b"
url = "http://127.0.0.1:9"
engine = "vllm"
"""
START = f"""
import argparse, os, sys
from sparktop.watch.monitor import Monitor

async def start(self):
    loaded = [name for name in {(*HEAVY, *LATE)!r} if name in sys.modules]
    os.write(1, f"loaded {{loaded}}".encode())
    os._exit(0)

Monitor.start = start  # the application calls it after the first picture
from sparktop.commands.choice import choose
from sparktop.ui.app import run
run(choose(argparse.Namespace(targets=[], config=sys.argv[1]), os.environ))
"""


@pytest.mark.outside
def test_until_the_first_picture_nothing_is_loaded_that_only_reading_needs(tmp_path: Path) -> None:
    """No start with a configuration file imports pydantic, an HTTP client or psutil."""
    assert starts(START, tmp_path) == "loaded []"


def starts(script: str, folder: Path) -> str:
    """Return the output of a run of `script` with a configuration file."""
    path = folder / "sparktop.toml"
    path.write_text(CONFIG, encoding="utf-8")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("XDG_", "SPARKTOP_"))}
    env = {
        **kept,
        "HOME": str(folder),
        "PYTHONPATH": str(ROOT),
        "TEXTUAL_DRIVER": "textual.drivers.headless_driver:HeadlessDriver",
    }
    return subprocess.run(  # noqa: S603 - this interpreter, a script of this file
        [sys.executable, "-c", script, str(path)], env=env, capture_output=True, check=True, timeout=40
    ).stdout.decode()


@pytest.mark.outside
def test_watching_and_recording_need_no_pydantic() -> None:
    """Watching and recording do not import pydantic, which saves 13 MiB, nor the views of sweeps."""
    code = """
import sys
import sparktop.recording.records, sparktop.recording.recorder
import sparktop.recording.records, sparktop.recording.session
import sparktop.sources.agent, sparktop.sources.engine_http, sparktop.sources.local, sparktop.sources.router
import sparktop.sources.ssh, sparktop.store.balance_judging, sparktop.ui.app, sparktop.watch.monitor
from sparktop.sources.decode import decode
from sparktop.sources.replies import Reply, encode
assert decode(encode(Reply("1"))).sparktop == "1"
unneeded = "pydantic", "httpx", "sparktop.model.sweep"
print([name for name in unneeded if name in sys.modules])
"""
    found = subprocess.run(  # noqa: S603 - the command is ours
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert found.stdout.strip() == "[]"
