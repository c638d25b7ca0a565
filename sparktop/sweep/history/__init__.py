"""Manages stored results: lists and searches them, stores tags and notes, imports, deletes and undoes."""
