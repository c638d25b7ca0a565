"""Definitions of metrics, error codes, reasons to doubt a result, statistics of small samples, limits."""
