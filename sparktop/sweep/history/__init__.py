"""All stored results: search, remarks, comparison, deletion and undo."""
