"""Recorded traffic (traces): files of other projects, read one request at a time."""
