"""Contexts of levels with depth, and the longest prompts that servers accept."""
