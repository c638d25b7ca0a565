"""The configuration file: its schema, validation, cache, and conversion to what is watched."""
