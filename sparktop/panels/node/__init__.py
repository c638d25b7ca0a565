"""Machines: as panels and on the full screen, and their processes."""
