"""What each role of the screen looks like: our themes and btop's."""
