"""Recordings: what the store was fed, as a file that another store can be fed from later."""
