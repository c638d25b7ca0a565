"""Servers and machines through the HTTP API of a Prometheus: its queries, and pages made from raw samples."""
