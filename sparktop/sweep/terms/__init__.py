"""Names and definitions of figures, error codes of requests, doubts, statistics of small samples, limits."""
