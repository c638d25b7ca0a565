"""Replies of node agents as JSON: encoded with the standard library alone, decoded and checked by viewers."""
