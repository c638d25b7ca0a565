"""Results of sweeps as text: JSON, Markdown, CSV, and the JSON of llama-benchy."""
