"""The messages between the generator's process and its parent, and their encoding."""
