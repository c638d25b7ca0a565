"""A sweep: its band, its whole screen, and the pages behind it."""
