"""Watching: what there is to watch is found, asked at the same instants, and handed to the store."""
