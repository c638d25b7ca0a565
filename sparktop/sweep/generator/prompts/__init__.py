"""Prompts of an exact length, no two alike."""
