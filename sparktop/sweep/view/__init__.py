"""Computes what screens and reports show of a sweep as plain values: rows, curves, sentences."""
