"""The screen as text: each panel turns views into rows of runs, knowing neither Textual nor a terminal.

A run is a piece of text and the role that a theme gives a colour to; a row is exactly as wide as its panel.
The live screen, the plain text report and the tests all read these rows.
"""
