"""sparktop whose event loop stands still for a while again and again, on purpose: see `sweeping.py`.

usage: sweeping_app.py CONFIG BLOCK_MS EVERY_S
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from sparktop.config import schema as config
from sparktop.ui import app, start


def main() -> int:
    """Show what the configuration names, and stand still as told."""
    path, block_ms, every_s = Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])

    class Blocked(app.SparktopApp):
        """The application as it is, with a timer that holds up its loop."""

        def on_ready(self) -> None:
            """Begin to stand still."""
            self.set_interval(every_s, lambda: time.sleep(block_ms / 1000))

    app.SparktopApp = Blocked  # type: ignore[misc]  # what `run` makes: the one seam
    return start.run(config.load(path).watch(os.environ))


if __name__ == "__main__":
    sys.exit(main())
