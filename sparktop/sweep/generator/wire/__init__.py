"""What the generator's process and its parent say to each other, and how it is written."""
