"""What screens and reports show of a sweep, computed as plain values (rows, curves, sentences)."""
