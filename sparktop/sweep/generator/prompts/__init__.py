"""Prompts of an exact length, each of them new."""
