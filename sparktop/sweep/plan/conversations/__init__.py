"""Conversations of people and agents with a model: presets of their shape, and scripts drawn from these."""
