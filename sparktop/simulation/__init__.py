"""The simulated cluster as pure arithmetic: engines, nodes, virtual time. No clock, no I/O, no threads."""
