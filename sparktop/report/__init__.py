"""One snapshot as something to keep or to pass on."""
