"""Node agent: serves this machine's samples to viewers elsewhere, over HTTP or through ssh."""
