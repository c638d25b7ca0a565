"""The simulated cluster as pure arithmetic, without clock or I/O: engines, nodes, routers, virtual time."""
