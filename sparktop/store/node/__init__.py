"""A machine in the store: its histories, alerts, restarts."""
