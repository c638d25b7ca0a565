"""Processes of a machine: the process table, and the processes of inference engines with their containers."""
