"""Simulated servers on loopback, with real HTTP, vLLM's names and varying load.

Everything says "simulated".
"""
