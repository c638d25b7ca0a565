"""Manages stored results: lists and searches them, imports and deletes."""
