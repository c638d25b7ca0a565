"""Definitions of metrics, error codes of requests, codes of doubts, statistics of small samples, limits."""
