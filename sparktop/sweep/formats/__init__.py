"""Results of sweeps as text: JSON, Markdown, CSV, and llama-benchy's JSON."""
