"""Reading of one machine: small files below an injected root, and the NVIDIA driver's library in process.

`machine.Machine` combines the readers. Standard library only, apart from nvidia-ml-py, which is imported for
the first sample.
"""
