"""Graphics: numbers in exact widths, braille graphs, bars and axes as text; elements of SVG.

Independent of terminals, widgets and samples.
"""
