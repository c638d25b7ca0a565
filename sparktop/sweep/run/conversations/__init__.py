"""Levels of agents: what their runs do, their forecast, and reasons to doubt them."""
