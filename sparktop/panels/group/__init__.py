"""A group's balance: its panel on the board, its full screen, and the evidence for its verdict."""
