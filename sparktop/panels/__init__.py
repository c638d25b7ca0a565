"""The screen as text: panels turn views of the model into rows, without Textual or a terminal.

A *row* is a line of text, exactly as wide as its panel, and consists of *runs*: styled text segments, each
with a role, the name that a theme maps to a colour. The live screen, the plain text report and the tests
all read these rows. Widths are in terminal cells, heights in rows. The drawing functions return rows.
"""
