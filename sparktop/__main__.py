"""`python -m sparktop`."""

from sparktop.cli import program

program()
