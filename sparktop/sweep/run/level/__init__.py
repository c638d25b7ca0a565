"""Execution and recording of the runs of one level."""
