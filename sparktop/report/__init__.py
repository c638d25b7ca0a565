"""Reports of a snapshot, to keep or to pass on: text, Markdown, HTML and JSON."""
