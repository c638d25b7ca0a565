"""Machines: as panels, on the full screen, and their processes."""
