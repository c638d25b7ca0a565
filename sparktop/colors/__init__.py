"""Colours of the screen by role: sparktop's own themes and btop's."""
