"""Results of other load generators, and our own, as series: one module a tool."""
