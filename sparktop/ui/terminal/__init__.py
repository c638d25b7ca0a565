"""The terminal: what is sent to it, how much and how often."""
