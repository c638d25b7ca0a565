"""Recordings: files with everything that changed a store, from which the changes can be replayed later."""
