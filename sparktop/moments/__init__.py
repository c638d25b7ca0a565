"""Reports of a span of time: of a recording, or of the last minutes on the screen."""
