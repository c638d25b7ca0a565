"""Simulated servers on loopback: real HTTP, vLLM's names, moving load; all of it says "simulated"."""
