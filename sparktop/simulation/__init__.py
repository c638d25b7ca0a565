"""The simulated cluster as pure arithmetic: engines, nodes, routers, virtual time. Without clock or I/O."""
