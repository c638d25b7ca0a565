"""Text graphics: numbers become strings of exact widths, as figures, braille graphs, bars, axes and colours.

Pure functions over the standard library, independent of terminals, widgets and samples.
"""
