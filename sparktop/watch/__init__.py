"""Watching: discovery of servers, scheduling of polls, and delivery of samples to the store."""
