"""Ways in: each source turns I/O into samples, and a group of them is polled at the same instants.

Import from the modules (`source`, `engine_http`, `local`, `scheduler`): each brings only what it needs.
"""
