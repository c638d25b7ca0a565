"""Comparison of series: own results, other tools' files and published tables."""
