"""Parse a streamed answer: from received bytes to tokens with arrival times."""
