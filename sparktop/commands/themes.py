"""`sparktop themes`: list the themes."""

from __future__ import annotations

import argparse

from sparktop.commands.output import tell, write_out


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Do nothing: `sparktop themes` has no arguments."""
    del parser


def run(arguments: argparse.Namespace) -> int:
    """Print the name, kind (dark, light or terminal) and title of each theme; return the exit code 0.

    For a user's own theme, its file is printed too. Problems with theme files are printed to standard error.
    """
    from sparktop.colors.palette import palettes, theme_problems  # late: --help loads no theme

    del arguments
    known = palettes()
    width = max((len(name) for name in known), default=0)
    lines = []
    for name, one in known.items():
        kind = "terminal" if one.ansi else "dark" if one.dark else "light"
        # A title that only repeats the name, as of each btop theme, is left out in favour of the file.
        about = "  ".join(part for part in (one.title if one.title != name else "", one.source) if part)
        lines.append(f"{name:<{width}}  {kind:<8}  {about}\n")
    write_out("".join(lines))
    for problem in theme_problems():
        tell(problem)
    return 0
