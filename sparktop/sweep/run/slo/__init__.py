"""Conditions on a level's figures, judged and searched."""
