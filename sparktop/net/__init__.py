"""Bounded HTTP requests to servers: addresses, sessions, bodies, failures in words."""
