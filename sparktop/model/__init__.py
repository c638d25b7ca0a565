"""Immutable records: samples, what was computed from them, and the snapshot that screens and reports show.

Standard library only. A missing value is `None`, never 0.
"""
