"""Agents of the load generator: conversations whose prompts hold the server's own answers."""
