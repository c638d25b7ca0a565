"""A group's balance: its band, its picture, and what its word rests on."""
