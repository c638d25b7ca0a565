"""Output formats of sweep results and comparisons: Markdown, CSV, JSON, llama-benchy's JSON, text plots."""
