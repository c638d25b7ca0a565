"""Fill the generated parts of docs/commands.md (help text, table of keys) and docs/prometheus.md (metrics).

usage: build_readme.py [--check]    with --check nothing is written and a stale page exits 1
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from sparktop.cli import main as sparktop
from sparktop.config.keys import KEYS
from sparktop.export.metrics import Metric
from sparktop.export.page import metric_tables

ROOT = Path(__file__).parent.parent
COMMANDS = ROOT / "docs" / "commands.md"
METRICS = ROOT / "docs" / "prometheus.md"


def help_block() -> str:
    """Return the help of the command line as a code block, as it is in 80 columns."""
    os.environ["COLUMNS"] = "80"
    with redirect_stdout(io.StringIO()) as out:
        sparktop(["--help"])
    return f"```text\n{out.getvalue().rstrip()}\n```"


def keys_block() -> str:
    """Return the keys as a table."""
    rows = [f"| `{key.shown}` | {key.help} |" for key in KEYS]
    return "\n".join(["| key | does |", "|---|---|", *rows])


def metrics_block() -> str:
    """Return the metrics of `sparktop export` as tables."""
    return "\n\n".join(_table(*part) for part in metric_tables())


def _table(title: str, shared: Sequence[str], metrics: Sequence[Metric[Any]]) -> str:
    """Return the metrics of one kind of part, all of which have the labels `shared`."""
    labels = [", ".join(f"`{label}`" for label in (*shared, *one.labels)) or "–" for one in metrics]
    rows = [f"| `{one.full_name}` | {own} | {one.text} |" for one, own in zip(metrics, labels, strict=True)]
    return "\n".join([f"### {title}", "", "| metric | labels | meaning |", "|---|---|---|", *rows])


def filled(text: str, name: str, block: str) -> str:
    """Return `text` with what stands between the two markers of `name` replaced."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    head, _, rest = text.partition(begin)
    _, _, tail = rest.partition(end)
    return f"{head}{begin}\n{block}\n{end}{tail}"


def main() -> int:
    """Write or check."""
    metrics = METRICS.read_text(encoding="utf-8")
    pages = {METRICS: (metrics, filled(metrics, "metrics", metrics_block()))}
    old = COMMANDS.read_text(encoding="utf-8")
    new = filled(old, "keys", keys_block())
    # argparse words its help differently from Python 3.13 on; the page shows what 3.11 and 3.12 say.
    if sys.version_info < (3, 13):
        new = filled(new, "help", help_block())
    pages[COMMANDS] = (old, new)
    stale = [path for path, (before, after) in pages.items() if before != after]
    for path in stale:
        if "--check" in sys.argv:
            print(f"{path.relative_to(ROOT)} is stale: run `make readme`", file=sys.stderr)
        else:
            path.write_text(pages[path][1], encoding="utf-8")
    return int(bool(stale) and "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
