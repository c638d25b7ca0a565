"""The demo in virtual time, used by screenshots, tests and benchmarks; not a part of the wheel.

A *rehearsal* is the demo's simulated servers and the real store, advanced step by step without clock and
network, so that equal arguments give equal results.
"""
