"""Values only: what was read, what was computed from it, and the snapshot that everything is drawn from.

Standard library only. A missing value is `None`, never 0.
"""
