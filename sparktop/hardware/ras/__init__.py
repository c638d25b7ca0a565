"""Asks the RAS thread of NCCL on this machine about the ranks of a job, and parses its answers."""
