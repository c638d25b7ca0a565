"""One streamed answer: from bytes to tokens with times."""
