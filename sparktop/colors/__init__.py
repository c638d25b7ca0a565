"""Themes, sparktop's own and btop's: a colour for each role of what is drawn, such as "title" or "warn"."""
