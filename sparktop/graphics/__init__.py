"""Numbers become strings of exact widths: figures, braille graphs, bars, axes and colours.

Pure functions over the standard library: nothing here knows a terminal, a widget or a sample.
"""
