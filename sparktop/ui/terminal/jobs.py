"""Whether a shell could resume this program after Ctrl-Z."""

from __future__ import annotations

import os
from pathlib import Path


def has_shell() -> bool:
    """Return whether a process of this session, outside of this job, waits for the job and can resume it.

    Without one, as in a window of its own or under `ssh -t HOST sparktop`, a stopped program would stay
    stopped.
    """
    job, session = os.getpgrp(), os.getsid(0)
    pid = os.getppid()
    try:
        while pid > 1 and os.getsid(pid) == session:
            if os.getpgid(pid) != job:
                return True
            pid = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
    except OSError:
        return False
    return False
