"""Seeded runs of each rule over families of cases, as a table: `python -m tests.findings.study --runs 200`.

A family says what its runs deserve. "Right" is the share of runs with the verdict that they were built for,
"false" the share of all other runs that got the verdict. Families marked * took part in choosing limits.
"""

from __future__ import annotations

import argparse
import importlib
import random
import sys
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path
from zlib import crc32

from msgspec import Struct

from sparktop.model.event import Finding, Sure

RIGHT_PERCENT, FALSE_PERCENT = 95.0, 0.5
"""Least share of right runs of a family built for a verdict, and most of false ones of any other family."""
UNKNOWN = "unknown"
_README = Path(__file__).parents[2] / "benchmarks" / "README.md"
_BEGIN, _END = "<!-- findings: begin -->", "<!-- findings: end -->"


Run = Callable[[random.Random], Sequence[Finding]]
"""Plays one run through the real rule; returns all findings of its end, or of all its moments."""


class Family(Struct, frozen=True):
    """Cases of one kind."""

    name: str
    kind: str
    """The kind of finding that is counted."""
    expects: str | None
    """`kind` where built for it, `UNKNOWN` where evidence is missing, None where all is well."""
    run: Run
    tuned: bool = False
    """Whether limits were chosen on this family."""


def seeded(seed: int | str) -> random.Random:
    """Return chance that is the same in each run."""
    return random.Random(seed)  # noqa: S311 - a simulation


def of_kind(
    kind: str, cases: Mapping[tuple[str, str | None], Run], tuned: Container[str] = ()
) -> tuple[Family, ...]:
    """Return the families of one kind of finding, of runs by (name, what is expected)."""
    return tuple(Family(name, kind, expects, run, name in tuned) for (name, expects), run in cases.items())


class Count(Struct, frozen=True):
    """How the runs of a family ended."""

    family: Family
    runs: int
    found: int
    """Runs with a finding of the kind that is not unknown."""
    unknown: int
    """Other runs with such a finding that is unknown: one that was unknown first and found later is not."""

    @property
    def is_good(self) -> bool:
        """Whether the shares keep their limits."""
        if self.family.expects == self.family.kind:
            # Of a few runs one may fail: a share of 97 % misses 10 of 10 in a quarter of all studies.
            return self.runs - self.found <= max(1.0, (1 - RIGHT_PERCENT / 100) * self.runs)
        return 100 * self.found <= FALSE_PERCENT * self.runs


def counted(family: Family, runs: int, seed: int = 0) -> Count:
    """Play `runs` runs of a family, from different seeds."""
    found = unknown = 0
    for number in range(runs):
        mine = [
            one
            for one in family.run(seeded(crc32(family.name.encode()) + 7919 * seed + number))
            if one.kind == family.kind
        ]
        is_found = any(one.sure is not Sure.UNKNOWN for one in mine)
        found += is_found
        unknown += bool(mine) and not is_found
    return Count(family, runs, found, unknown)


def families() -> list[Family]:
    """Return the families of all modules beside this one."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("*.py"))
    modules = [importlib.import_module(f"tests.findings.{name}") for name in names if name != "study"]
    return [family for module in modules for family in getattr(module, "FAMILIES", ())]


def as_table(counts: Sequence[Count]) -> str:
    """Return the counts as a table in Markdown."""
    lines = [
        "| finding | family | built for it | runs | found | unknown | |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in counts:
        built = "yes" if one.family.expects == one.family.kind else one.family.expects or "no"
        mark = "✓" if one.is_good else "✗"
        name = f"{one.family.name}{' *' if one.family.tuned else ''}"
        lines.append(
            f"| {one.family.kind} | {name} | {built} | {one.runs} | {one.found} | {one.unknown} | {mark} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; with --write also put it into benchmarks/README.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", help="only families of this kind of finding")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    chosen = [one for one in families() if options.kind in {None, one.kind}]
    counts = [counted(one, options.runs, options.seed) for one in chosen]
    table = as_table(counts)
    sys.stdout.write(f"{table}\n")
    if options.write:
        text = _README.read_text("utf-8")
        start, end = text.index(_BEGIN) + len(_BEGIN), text.index(_END)
        heading, rows = table.split("\n")[:2], table.split("\n")[2:]
        if options.kind:  # the rows of other kinds stay
            earlier = text[start:end].strip().split("\n")[2:]
            rows = [line for line in earlier if not line.startswith(f"| {options.kind} |")] + rows
        _README.write_text("\n".join([text[:start], "", *heading, *rows, "", text[end:]]), "utf-8")
    return 0 if all(one.is_good for one in counts) else 1


if __name__ == "__main__":
    sys.exit(main())
