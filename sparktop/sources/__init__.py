"""Data sources: each polls a server, a router or a machine and returns a sample or a failure.

Import from the modules (`source`, `engine_http`, `local`), not from this package, so that only what is needed
is loaded.
"""
