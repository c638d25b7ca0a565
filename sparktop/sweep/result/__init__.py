"""Computation of a level's metrics from its load events, and the file that stores a sweep's result."""
