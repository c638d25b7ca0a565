"""Simulated inference servers on loopback: real HTTP, vLLM's metric names and a varying load.

Versions, server headers and titles that the servers report contain "simulated".
"""
