"""One module a command: its arguments, and what it does. Nothing heavy is imported before it runs."""
