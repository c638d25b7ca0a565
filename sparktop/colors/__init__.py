"""Colours of the screen by role, from sparktop's own themes and btop's."""
