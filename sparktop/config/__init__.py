"""The configuration file: its schema, validation and cache, and its conversion to targets and settings."""
