"""Levels that replay recorded traffic: what the result file holds of them, and how it is computed."""
