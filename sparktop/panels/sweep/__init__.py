"""A sweep: its band, its full screen, and that screen's pages."""
