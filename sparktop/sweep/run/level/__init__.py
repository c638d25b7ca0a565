"""Execute and record the load runs of one level: one prompt length and concurrency on one target."""
