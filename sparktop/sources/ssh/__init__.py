"""Nodes read over the system's ssh."""
