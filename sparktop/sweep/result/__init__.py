"""From the events of a level to its figures, and the file that keeps them."""
