"""Run sparktop with an event loop that is blocked periodically, on purpose: see `sweeping.py`.

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
    """Show the servers of CONFIG, and block the loop for BLOCK_MS milliseconds every EVERY_S seconds."""
    path, block_ms, every_s = Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])

    class Blocked(app.SparktopApp):
        """The application, with a timer that blocks its event loop."""

        def on_ready(self) -> None:
            """Start the timer."""
            self.set_interval(every_s, lambda: time.sleep(block_ms / 1000))

    app.SparktopApp = Blocked  # type: ignore[misc]  # the class that `run` instantiates
    return start.run(config.load(path).watch(os.environ))


if __name__ == "__main__":
    sys.exit(main())
