"""The GPUs of a machine, as sections and as a table."""
