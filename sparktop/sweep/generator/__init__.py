"""The load generator: a process of its own that sends requests and stamps what comes back."""
