"""What holds a server back: rules over its polls, its machines and its peers, without a single threshold."""
