"""GPUs, read through NVML."""
