"""What a screen and a report show of a sweep, as values."""
