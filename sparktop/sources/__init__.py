"""Data sources: each turns I/O into samples, and the scheduler polls a group of them at the same instants.

Import from the modules (`source`, `engine_http`, `local`, `scheduler`) so that only what is needed is loaded.
"""
