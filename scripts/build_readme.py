"""Fill the generated parts of README.md: the help text and the table of keys.

usage: build_readme.py [--check]    with --check nothing is written and a stale README exits 1
"""

from __future__ import annotations

import io
import os
import sys
from contextlib import redirect_stdout
from pathlib import Path

from sparktop.cli import main as sparktop
from sparktop.config.keys import KEYS

README = Path(__file__).parent.parent / "README.md"


def help_block() -> str:
    """Give the help of the command line as a code block, as it is in 80 columns."""
    os.environ["COLUMNS"] = "80"
    with redirect_stdout(io.StringIO()) as out:
        sparktop(["--help"])
    return f"```text\n{out.getvalue().rstrip()}\n```"


def keys_block() -> str:
    """Give the keys as a table."""
    rows = [f"| `{key.shown}` | {key.help} |" for key in KEYS]
    return "\n".join(["| key | does |", "|---|---|", *rows])


def filled(text: str, name: str, block: str) -> str:
    """Give `text` with what stands between the two markers of `name` replaced."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    head, _, rest = text.partition(begin)
    _, _, tail = rest.partition(end)
    return f"{head}{begin}\n{block}\n{end}{tail}"


def main() -> int:
    """Write or check."""
    old = README.read_text(encoding="utf-8")
    new = filled(old, "keys", keys_block())
    # argparse words its help differently from Python 3.13 on; the README shows what 3.11 and 3.12 say.
    if sys.version_info < (3, 13):
        new = filled(new, "help", help_block())
    if "--check" in sys.argv:
        if old != new:
            print("README.md is stale: run `make readme`", file=sys.stderr)
        return int(old != new)
    README.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
