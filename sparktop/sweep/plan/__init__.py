"""What a sweep is to do, and how it is chosen."""
