"""Requests at a rate: the arrivals of a run, the search for the highest rate, and reasons to doubt it."""
