"""Reads one machine: small files of /proc and /sys below a given root, and GPUs through NVIDIA's NVML.

`machine.Machine` combines the readers. Standard library only, apart from nvidia-ml-py, which is imported when
the first sample is read.
"""
