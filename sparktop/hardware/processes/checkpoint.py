"""Size of the files with a model's weights, through the server's own view of the file system.

Only of servers whose files this user may see: its own, or all as root. Files can lie on a slow network drive,
so each folder is read once, in a thread of its own.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

_MOST_FILES = 2000
_WEIGHTS = (".safetensors", ".gguf", ".bin", ".pt", ".pth")
_HUB = "root/.cache/huggingface/hub"


class CheckpointReader:
    """Finds the size of each server's weights once, in the background."""

    def __init__(self, root: Path = Path("/")) -> None:
        """Read through /proc/PID/root below `root`."""
        self._proc = root / "proc"
        self._sizes: dict[tuple[int, int], int | None] = {}

    def find(self, pid: int, start: int, model: str | None) -> int | None:
        """Return the bytes of the weights of `model`, a path or a name; None while that is not known.

        `start` is the start of the server's process in clock ticks.
        """
        if model is None:
            return None
        key = (pid, start)
        if key not in self._sizes:
            if len(self._sizes) >= _MOST_FILES:
                self._sizes.clear()
            self._sizes[key] = None
            folder = self._proc / str(pid) / "root"
            if os.access(folder, os.X_OK):
                threading.Thread(
                    target=self._measure, args=(key, folder, model), name="sparktop-weights", daemon=True
                ).start()
        return self._sizes[key]

    def _measure(self, key: tuple[int, int], root: Path, model: str) -> None:
        self._sizes[key] = weights_bytes(root, model)


def weights_bytes(root: Path, model: str) -> int | None:
    """Return the bytes of the weights of `model` below `root`; None if they are not found."""
    try:
        if model.startswith("/"):
            place = root / model.lstrip("/")
            return place.stat().st_size if place.is_file() else _sum(place)
        snapshots = root / _HUB / f"models--{model.replace('/', '--')}" / "snapshots"
        found = sorted(snapshots.iterdir(), key=lambda one: one.stat().st_mtime)
        return _sum(found[-1]) if found else None
    except (OSError, ValueError):
        return None


def _sum(folder: Path) -> int | None:
    sizes: dict[str, int] = {}
    with os.scandir(folder) as files:
        for _, file in zip(range(_MOST_FILES), files, strict=False):
            suffix = Path(file.name).suffix
            if suffix in _WEIGHTS:
                sizes[suffix] = sizes.get(suffix, 0) + file.stat().st_size
    # A folder can hold the same weights in several formats; the first of the list is loaded.
    return next((sizes[suffix] for suffix in _WEIGHTS if suffix in sizes), None)
