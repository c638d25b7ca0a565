"""What Python 3.10 lacks of the standard library, and what early releases of 3.11 have wrong.

The viewer needs Python 3.11. The reader that it sends to other machines also runs there with Python 3.10.
"""
