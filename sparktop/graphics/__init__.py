"""Text graphics: formats numbers in exact widths; draws braille graphs, bars and axes; mixes colours.

Pure functions over the standard library, independent of terminals, widgets and samples.
"""
