"""sparktop: watch LLM serving on DGX Sparks, live in a terminal."""

__version__ = "1.3.0"
