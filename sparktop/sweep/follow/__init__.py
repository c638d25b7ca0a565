"""`--follow FILE`: a run that another program makes, from its progress stream."""
