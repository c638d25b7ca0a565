"""Interpretation of figures: pure functions of snapshots and series, standard library only."""
