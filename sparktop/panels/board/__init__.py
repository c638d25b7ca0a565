"""The whole board: where each panel goes, what is shown, and its bars."""
