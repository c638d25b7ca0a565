"""Results of other load generators, and sparktop's own, as series: one module per tool."""
