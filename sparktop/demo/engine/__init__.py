"""A simulated inference server over real HTTP: its routes, responses, metrics page and life cycle."""
