"""Shows another tool's benchmark live, from the progress stream that this tool writes (`--follow FILE`)."""
