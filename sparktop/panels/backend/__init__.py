"""Backends and routers: as panels, tiles, a table, and on the whole screen."""
