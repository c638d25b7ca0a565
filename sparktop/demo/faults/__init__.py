"""Faults of the simulated cluster: what befalls a server, and what its machines then show."""
