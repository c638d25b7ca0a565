"""Serves the board to web browsers: rows of `panels/` as HTML, live, drawn once for all viewers."""
