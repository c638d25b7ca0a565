"""sparktop: watch LLM serving on DGX Sparks, live in a terminal."""

__version__ = "2.0.0"
