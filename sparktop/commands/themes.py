"""`sparktop themes`: list them."""

from __future__ import annotations

import argparse

from sparktop.commands.output import write_out


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add nothing: the list has no options."""
    del parser


def run(arguments: argparse.Namespace) -> int:
    """Print every theme's name, kind and title."""
    from sparktop.palette import palettes  # late: --help loads no theme

    del arguments
    known = palettes()
    width = max((len(name) for name in known), default=0)
    kinds = {name: "terminal" if one.ansi else "dark" if one.dark else "light" for name, one in known.items()}
    write_out("".join(f"{name:<{width}}  {kinds[name]:<8}  {one.title}\n" for name, one in known.items()))
    return 0
