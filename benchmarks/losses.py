"""Measure what recordings lose to killed programs, power cuts, full disks, hostile files and clock jumps.

Each experiment breaks recordings of the simulated cluster in its own way and yields rows of one table: number
of runs, expected and actual result. A kill leaves what was written, a power cut what was synced: a wrapper of
`os.fdatasync` logs the time and the bytes synced. The experiments are in `benchmarks/broken/`.

usage: losses.py [--short] [--only EXPERIMENT …] [--write]

With --write, the table is written to benchmarks/README.md. Full and read-only disks need root (for a tmpfs).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from broken import clocks, crashes, disks, files
from broken.shared import Row

README = Path(__file__).resolve().parent / "README.md"
MARKS = ("<!-- losses.py: begin -->", "<!-- losses.py: end -->")
EXPERIMENTS: dict[str, Callable[..., Iterator[Row]]] = {
    "kills": crashes.kills,
    "power": crashes.power,
    "tails": crashes.tails,
    "readers": files.readers,
    "hostile": files.hostile,
    "full": disks.full,
    "refused": disks.refused,
    "together": disks.together,
    "mounts": disks.mounts,
    "clocks": clocks.steps,
}


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a Markdown table."""
    lines = ["| experiment | runs | wanted | seen | |", "|---|---|---|---|---|"]
    lines += [
        f"| {row.experiment} | {row.runs:,} | {row.wanted} | {row.seen} | {'✓' if row.holds else '**✗**'} |"
        for row in rows
    ]
    return "\n".join(lines)


def write(text: str) -> None:
    """Replace the table in README.md."""
    before, _, rest = README.read_text(encoding="utf-8").partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    README.write_text(f"{before}{MARKS[0]}\n\n{text}\n\n{MARKS[1]}{after}", encoding="utf-8")


def main() -> int:
    """Run the experiments and print their table; return 1 if a row is not as expected, else 0."""
    parser = argparse.ArgumentParser(prog="losses.py", description=(__doc__ or "").split("\n\n", 1)[0])
    parser.add_argument("--short", action="store_true", help="fewer runs of each")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=EXPERIMENTS, default=list(EXPERIMENTS))
    parser.add_argument("--write", action="store_true", help="put the table into benchmarks/README.md")
    options = parser.parse_args()
    rows: list[Row] = []
    for name in options.only:
        with tempfile.TemporaryDirectory(prefix=f"losses-{name}-") as folder:
            for row in EXPERIMENTS[name](Path(folder), short=options.short):
                rows.append(row)
                print(table([row]).splitlines()[-1], flush=True)
    if options.write:
        write(table(rows))
    return int(not all(row.holds for row in rows))


if __name__ == "__main__":
    sys.exit(main())
