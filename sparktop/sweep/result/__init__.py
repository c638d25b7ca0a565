"""From the events of a level to its figures, and the file that stores them."""
