"""Run the command line, for `python -m sparktop`."""

from sparktop.cli import program

program()
