"""The tables of a sweep's report."""
