"""Watching through a Prometheus: what it scrapes is found, read at the pace of its scrapes, and delivered."""
