"""The history of stored results: list, search, tags and notes, import, deletion and undo."""
