"""Reading one machine: small files below an injected root, and the NVIDIA driver in process.

`machine.Machine` puts it together. Standard library only, apart from nvidia-ml-py, which is imported when the
first sample is taken.
"""
