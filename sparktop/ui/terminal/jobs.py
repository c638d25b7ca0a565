"""Whether a shell could resume this program after Ctrl-Z."""

from __future__ import annotations

import os

import psutil


def has_shell() -> bool:
    """Return whether a process of this session, outside of this job, waits for the job and can resume it.

    Without one, as in a window of its own or under `ssh -t HOST sparktop`, a stopped program would stay
    stopped.
    """
    job, session = os.getpgrp(), os.getsid(0)
    try:
        for parent in psutil.Process().parents():
            if os.getsid(parent.pid) != session:
                return False
            if os.getpgid(parent.pid) != job:
                return True
    except (OSError, psutil.Error):
        return False
    return False
