"""Simulated loads with known truth for the balance judge; they share no code with what they test."""
