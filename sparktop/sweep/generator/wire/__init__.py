"""The commands and messages between the load generator's process and its parent, and their encoding."""
