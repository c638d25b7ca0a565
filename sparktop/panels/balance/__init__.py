"""A group's balance: its panel on the overview, its full screen, and the evidence for its verdict."""
