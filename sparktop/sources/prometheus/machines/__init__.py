"""Machines among the series of a Prometheus: their exporters, their figures, and the servers on them."""
