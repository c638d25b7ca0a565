"""A simulated server over real HTTP: its routes, its answers, its page, and where it lives."""
