"""The demo in virtual time: what screenshots, tests and benchmarks are drawn from. Not in the wheel."""
