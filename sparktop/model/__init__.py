"""Values only: what was read, what was computed from it, and the one picture everything draws from.

Standard library only. What can be missing is `None` when it is: nothing here is ever 0 for unknown.
"""
