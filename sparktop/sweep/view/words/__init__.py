"""Sentences about a sweep: its headline, verdict and conditions."""
