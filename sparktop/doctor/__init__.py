"""Diagnosis of this machine and what is watched: each check is a small function that returns a `Check`.

Observation (sockets, files, the terminal) is separate from judgement, so that judgement needs only values.
"""
