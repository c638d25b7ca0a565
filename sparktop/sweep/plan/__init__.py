"""What a sweep is to do, and how a user chooses it."""
