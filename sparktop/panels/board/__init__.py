"""The board (the main screen's content): the place of each panel, its rows, and the bars above and below."""
