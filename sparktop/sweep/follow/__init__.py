"""`--follow FILE`: another tool's benchmark, shown live from the progress stream that it writes."""
