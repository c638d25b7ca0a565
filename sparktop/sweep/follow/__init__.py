"""`--follow FILE`: a run of another program, from its progress stream."""
