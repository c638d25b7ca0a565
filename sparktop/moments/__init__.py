"""Reports on a span of time, taken from a recording or from the last minutes that the viewer has shown."""
