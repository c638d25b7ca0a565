"""The GPUs of a machine."""
