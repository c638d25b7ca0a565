"""What works, what does not, and what to do: every check is a small function that gives a `Check`.

Looking (sockets, files, the terminal) and judging are apart, so that judging needs nothing but values.
"""
