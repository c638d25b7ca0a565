"""What a start loads before its first picture."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HEAVY = ("pydantic", "httpx", "aiohttp", "psutil", "plotext", "pynvml")
CONFIG = """
theme = "spark-light"
[[nodes]]
name = "n"
[[backends]]
name = "b"
url = "http://127.0.0.1:9"
"""
START = f"""
import argparse, os, sys
from sparktop.watch.monitor import Monitor

async def start(self):
    loaded = [name for name in {HEAVY!r} if name in sys.modules]
    os.write(1, f"loaded {{loaded}}".encode())
    os._exit(0)

Monitor.start = start  # the application calls it after the first picture
from sparktop.commands.choice import choose
from sparktop.ui.app import run
run(choose(argparse.Namespace(targets=[], config=sys.argv[1]), os.environ))
"""


@pytest.mark.outside
def test_until_the_first_picture_nothing_is_loaded_that_only_reading_needs(tmp_path: Path) -> None:
    """The first start checks the file with pydantic; the second loads neither it, nor a client or psutil."""
    path = tmp_path / "sparktop.toml"
    path.write_text(CONFIG, encoding="utf-8")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("XDG_", "SPARKTOP_"))}
    env = {
        **kept,
        "HOME": str(tmp_path),
        "PYTHONPATH": str(ROOT),
        "TEXTUAL_DRIVER": "textual.drivers.headless_driver:HeadlessDriver",
    }
    told = [
        subprocess.run(  # noqa: S603 - this interpreter, a script of this file
            [sys.executable, "-c", START, str(path)], env=env, capture_output=True, check=True, timeout=40
        ).stdout.decode()
        for _ in range(2)
    ]
    assert told == ["loaded ['pydantic']", "loaded []"]
