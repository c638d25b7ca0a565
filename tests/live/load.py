"""The client of the live tests as a process of its own, for the duration of a block."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

_CLIENT = Path(__file__).with_name("load_client.py")


@asynccontextmanager
async def load(*words: str) -> AsyncIterator[dict[str, int]]:
    """Run `load_client.py` with these arguments; yield its totals, there after the block. None may fail."""
    totals: dict[str, int] = {}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(_CLIENT), *words), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    try:
        yield totals
    finally:
        try:
            out, _ = await asyncio.wait_for(process.communicate(b""), 30)  # closes its standard input
        finally:
            if process.returncode is None:
                process.kill()
    totals.update(json.loads(out))
    sys.stdout.write(f"\nload: {totals}\n")
    assert totals["failed"] == 0
