"""The board: the place of each panel, what is shown, and the bars above and below."""
