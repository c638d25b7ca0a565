"""Simulated inference servers on this machine (loopback): real HTTP, vLLM's metric names, a varying load.

Versions, server headers and titles that the servers report contain "simulated".
"""
