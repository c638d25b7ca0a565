"""Reports of a snapshot, to keep or to pass on: as text, Markdown, HTML or JSON."""
