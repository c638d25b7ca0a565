"""Interpretation of measured values: pure functions of snapshots and time series, standard library only."""
