"""The screen as text: panels turn views of the model into rows of runs, without Textual or a terminal.

A run is a piece of text with a role, the name that a theme maps to a colour; a row is exactly as wide as its
panel. The live screen, the plain text report and the tests all read these rows.
"""
