"""Machines: as panels, on the whole screen, and their processes."""
