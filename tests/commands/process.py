"""A command as a process, to its end."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path
from typing import IO

from tests.agent.agent_process import environment


def ran(
    home: Path,
    *words: str,
    out: int | IO[bytes] = subprocess.PIPE,
    most_bytes: int | None = None,
    **more: str,
) -> subprocess.CompletedProcess[str]:
    """Run `sparktop` in a home of its own, which is also its folder; its files have at most `most_bytes`."""

    def limit() -> None:
        if most_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))

    return subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-m", "sparktop", *words],
        env=environment(home, **more),
        cwd=home,
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
        check=False,
        preexec_fn=limit,
    )
