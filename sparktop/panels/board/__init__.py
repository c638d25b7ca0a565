"""The board, which is the content of the main screen: where each panel is, and the rows of each panel."""
