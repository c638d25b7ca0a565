"""Comparison of targets: of own sweeps, of other tools' result files, and of published benchmark tables."""
