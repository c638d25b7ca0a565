"""The load generator: a separate process that sends requests and timestamps the answers."""
