"""The log file, which receives tracebacks of programming errors instead of the screen."""

from __future__ import annotations

import logging
import logging.handlers
from collections.abc import Mapping
from pathlib import Path

from sparktop.files import BaseFolder, folder_of

MAX_BYTES = 1_000_000
"""Size in bytes at which the log is rotated; one older file is kept."""


def log_path(env: Mapping[str, str]) -> Path:
    """Return the path of the log: `$XDG_STATE_HOME/sparktop/sparktop.log`, else below ~/.local/state."""
    return folder_of(env, BaseFolder.STATE) / "sparktop.log"


def open_log(env: Mapping[str, str]) -> Path | None:
    """Send warnings and errors of all loggers to the log file; return the file's path.

    If the file cannot be opened, return None and drop the messages, because printing them would garble the
    screen.
    """
    root = logging.getLogger()
    path = log_path(env)
    open_handlers = [
        opened for opened in root.handlers if isinstance(opened, logging.handlers.RotatingFileHandler)
    ]
    if any(opened.baseFilename == str(path) for opened in open_handlers):
        return path
    logging.raiseExceptions = False  # a full disk must not print a traceback either
    logging.captureWarnings(capture=True)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handler = logging.handlers.RotatingFileHandler(
            path, maxBytes=MAX_BYTES, backupCount=1, encoding="utf-8", errors="backslashreplace"
        )
    except OSError:
        root.addHandler(logging.NullHandler())
        return None
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root.addHandler(handler)
    return path
