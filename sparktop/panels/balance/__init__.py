"""A group's balance: its band, its picture, and the evidence for its verdict."""
