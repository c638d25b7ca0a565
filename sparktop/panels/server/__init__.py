"""Servers and routers: as panels, tiles and a table, and on the full screen."""
