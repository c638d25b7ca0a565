"""Serves what sparktop computes, but neither engines nor GPU exporters have, as metrics for Prometheus."""
