"""Tell whether the sparktop that a container runs works: what serves answers, what records has just written.

The health check of Containerfile. Standard library only: it is copied beside the program.
"""

from __future__ import annotations

import argparse
import ssl
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

PORTS = {"agent": 9750, "export": 9751, "serve": 9752}
"""By command that serves: its port where `--listen` names none."""
ANSWER_S = 4.0
SILENT_S = 60.0
"""A recording is written every second: after so long without it does not record."""
FIRST_PROCESS = Path("/proc/1/cmdline")


def why_not(command: Sequence[str]) -> str | None:
    """Return why the sparktop with the command line `command` does not work; None if it does."""
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False, exit_on_error=False)
    parser.add_argument("--listen", default="")
    parser.add_argument("--tls-cert")
    parser.add_argument("-o", "--output")
    known, _ = parser.parse_known_args(list(command))
    name = next((word for word in command if word in {*PORTS, "record"}), None)
    if name is None:
        return None  # such as `sparktop snapshot`, which ends by itself
    if name == "record":
        return None if known.output is None else _why_not_written(Path(known.output))
    port = known.listen.rpartition(":")[2] or PORTS[name]
    return _why_no_answer(f"{'https' if known.tls_cert else 'http'}://127.0.0.1:{port}/healthz")


def _why_not_written(path: Path) -> str | None:
    """Return why a recording is not going on; its parts are files whose names begin as `path` does."""
    begin = path.name.partition(".")[0]
    times = [part.stat().st_mtime for part in path.parent.glob(f"{begin}*") if part.is_file()]
    if not times:
        return f"{path} does not exist"
    age_s = time.time() - max(times)
    return f"{path} was written {age_s:.0f} s ago" if age_s > SILENT_S else None


def _why_no_answer(url: str) -> str | None:
    unchecked = ssl.create_default_context()  # the certificate is of the name that clients use
    unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
    try:
        urllib.request.urlopen(url, timeout=ANSWER_S, context=unchecked).close()  # noqa: S310 - http(s), built here
    except (OSError, ValueError) as error:
        return f"{url}: {error}"
    return None


def main() -> int:
    """Look at the container's first process; return the exit code."""
    problem = why_not(FIRST_PROCESS.read_bytes().decode(errors="replace").split("\0"))
    if problem is not None:
        sys.stderr.write(f"{problem}\n")
    return int(problem is not None)


if __name__ == "__main__":
    sys.exit(main())
