"""Dumps: the readings and metrics of a recording as JSON lines, CSV or OpenMetrics, for other programs."""
