"""Diagnosis of this machine and of the servers and nodes that are watched (`sparktop doctor`).

Each check is a small function that returns a `Check`. Functions that observe (sockets, files, the terminal)
are separate from functions that evaluate what was observed, so that the latter are pure.
"""
